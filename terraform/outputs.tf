output "app_name" {
  description = "Name of the application"
  value       = juju_application.istio_init_egress.name
}

output "provides" {
  description = "Endpoints that the charm provides"
  value       = {}
}

output "requires" {
  description = "Endpoints that the charm requires"
  value = {
    certificates   = "certificates"
    gateway_info   = "gateway-info"
    istio_metadata = "istio-metadata"
  }
}
