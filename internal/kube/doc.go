// Package kube holds the Helm chart, the plain manifests made of it and docs/kubernetes.md to their word on a machine without a
// cluster: it renders them with Helm itself, validates what comes of that against the schemas of Kubernetes' releases and the restricted
// Pod Security Standard, and starts the real programs with the arguments, variables and files of the rendered pods. There is nothing here
// but tests.
package kube
