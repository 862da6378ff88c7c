output "app_name" {
  description = "Name of the application"
  value       = juju_application.istio_init_egress.name
}

output "provides" {
  description = "Endpoints that the charm provides"
  value = {
    grafana_dashboard = "grafana-dashboard"
    metrics_endpoint  = "metrics-endpoint"
  }
}

output "requires" {
  description = "Endpoints that the charm requires"
  value = {
    certificates    = "certificates"
    charm_tracing   = "charm-tracing"
    gateway_info    = "gateway-info"
    istio_metadata  = "istio-metadata"
    logging         = "logging"
    receive_ca_cert = "receive-ca-cert"
  }
}
