resource "juju_application" "istio_init_egress" {
  name        = var.app_name
  model_uuid  = var.model_uuid
  config      = var.config
  constraints = var.constraints
  resources   = var.resources
  units       = var.units

  # The charm writes cluster-wide objects; without trust it waits, blocked.
  trust = true

  charm {
    name     = "istio-init-egress"
    base     = var.base
    channel  = var.channel
    revision = var.revision
  }
}
