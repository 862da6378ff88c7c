"""Give the init containers of an Istio mesh their network back."""

__version__ = "0.1.0"
