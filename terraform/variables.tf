variable "app_name" {
  description = "Name of the application; the objects on the cluster carry it"
  type        = string
  default     = "istio-init-egress"
  nullable    = false
}

variable "base" {
  description = "Base that the charm runs on"
  type        = string
  default     = "ubuntu@24.04"
}

variable "channel" {
  description = "Charmhub channel, as track/risk"
  type        = string
  default     = "latest/stable"
  nullable    = false

  validation {
    condition     = can(regex("^[^/]+/(stable|candidate|beta|edge)(/[^/]+)?$", var.channel))
    error_message = "The channel must be track/risk, such as latest/stable or 1.0/edge."
  }
}

variable "config" {
  description = "Options of the charm that differ from their defaults, as text"
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "constraints" {
  description = "Constraints of the charm's own Pod, such as mem=256M; a change replaces the application"
  type        = string
  default     = null
}

variable "model_uuid" {
  description = "UUID of the model to deploy into; Charmed Kubeflow's is kubeflow"
  type        = string
  nullable    = false
}

variable "resources" {
  description = "Resources that differ from those of the channel: webhook-image, as a revision or an image"
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(setsubtract(keys(var.resources), ["webhook-image"])) == 0
    error_message = "The charm's only resource is webhook-image."
  }
}

variable "revision" {
  description = "Revision of the charm; by default the channel's latest"
  type        = number
  default     = null
}

variable "units" {
  description = "Units of the charm; the leader does the work, the others stand by"
  type        = number
  default     = 1
  nullable    = false
}
