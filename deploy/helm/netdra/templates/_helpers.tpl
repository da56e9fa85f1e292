{{- define "netdra.name" -}}
{{- $suffix := .Values.nameOverride -}}
{{- $name := .Release.Name -}}
{{- if and $suffix (not (contains $suffix $name)) }}{{ $name = printf "%s-%s" $name $suffix }}{{ end -}}
{{- default $name .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "netdra.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* A Service cannot have every name that a release can have: it has no dots, and begins with a letter. */}}
{{- define "netdra.metricsName" -}}
{{- $name := include "netdra.name" . | replace "." "-" -}}
{{- regexMatch "^[a-z]" $name | ternary $name (printf "netdra-%s" $name | trunc 55 | trimSuffix "-") -}}-metrics
{{- end -}}

{{- define "netdra.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "netdra.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "netdra.selectorLabels" -}}
app.kubernetes.io/name: netdra
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "netdra.labels" -}}
{{ include "netdra.selectorLabels" . }}
{{ include "netdra.otherLabels" . }}
{{- end -}}

{{/* Of an object with labels of its own, which replace common ones. Call it with a list: the root, and these labels or nil. */}}
{{- define "netdra.labelsAnd" -}}
{{- $root := first . -}}
{{ include "netdra.selectorLabels" $root }}
{{ include "netdra.versionLabels" $root }}
{{- with merge (deepCopy (last . | default dict)) ($root.Values.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "netdra.otherLabels" -}}
{{ include "netdra.versionLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "netdra.versionLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Not the labels of the driver's pods: the DaemonSet and the metrics Service would take the test's pod for one of them. */}}
{{- define "netdra.testLabels" -}}
app.kubernetes.io/name: netdra-test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{ include "netdra.otherLabels" . }}
{{- end -}}

{{- define "netdra.seccompProfile" -}}
{{- default (printf "%s/%s.json" .Values.driverName (default (default .Chart.AppVersion .Values.image.tag) (trimPrefix "sha256:" (default "" .Values.image.digest)))) .Values.kubeletPlugin.seccomp.localhostProfile -}}
{{- end -}}

{{/* global.imageRegistry takes the place of the registry, which the schema of the values asks for. */}}
{{- define "netdra.image" -}}
{{- $repository := .Values.image.repository -}}
{{- with (.Values.global | default dict).imageRegistry }}{{ $repository = regexReplaceAll "^[^/]*" $repository (trimSuffix "/" .) }}{{ end -}}
{{- $tag := .Values.image.tag -}}
{{- if and .Values.image.digest $tag -}}
{{- fail (printf "image.tag (%s) has no effect beside image.digest: pass --set image.digest= to install by tag, or --set image.tag= to install by digest" $tag) -}}
{{- else if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion $tag) -}}
{{- end -}}
{{- end -}}

{{- define "netdra.pluginsDirectory" -}}
{{- default (printf "%s/plugins" .Values.kubeletPlugin.kubeletRootDirectoryPath) .Values.kubeletPlugin.kubeletPluginsDirectoryPath -}}
{{- end -}}

{{- define "netdra.registrarDirectory" -}}
{{- default (printf "%s/plugins_registry" .Values.kubeletPlugin.kubeletRootDirectoryPath) .Values.kubeletPlugin.kubeletRegistrarDirectoryPath -}}
{{- end -}}

{{- define "netdra.seccompDirectory" -}}
{{- default (printf "%s/seccomp" .Values.kubeletPlugin.kubeletRootDirectoryPath) .Values.kubeletPlugin.seccomp.directoryPath -}}
{{- end -}}

{{/* Addresses are taken with and without the brackets of IPv6. */}}
{{- define "netdra.httpHost" -}}
{{- default "" .Values.http.host | trimPrefix "[" | trimSuffix "]" -}}
{{- end -}}

{{/* A probe cannot connect to "all addresses"; the kubelet is on the same host's network. */}}
{{- define "netdra.probeHost" -}}
{{- $host := include "netdra.httpHost" . -}}
{{- if eq $host "::" }}::1{{ else if eq $host "0.0.0.0" }}127.0.0.1{{ else }}{{ $host }}{{ end -}}
{{- end -}}

{{- /*
Not empty if the release may create a CustomResourceDefinition that stays when a release goes: it is its own, or there is none.
Arguments: the root context, the name of the definition.
*/ -}}
{{- define "netdra.mayDefine" -}}
{{- $root := index . 0 }}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" (index . 1) }}
{{- $owner := dig "metadata" "annotations" dict ($found | default dict) }}
{{- $isOurs := and (eq (dig "meta.helm.sh/release-name" "" $owner) $root.Release.Name) (eq (dig "meta.helm.sh/release-namespace" "" $owner) $root.Release.Namespace) }}
{{- if or (not $found) $isOurs }}true{{ end }}
{{- end }}
