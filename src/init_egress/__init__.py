"""Give the init containers of an Istio mesh their network back."""
