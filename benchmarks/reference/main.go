// The reference: the decision of src/init_egress/rule/decision.py (remedy exclude-ip-ranges, existing
// annotations merged) on controller-runtime, as one would write it in Go.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	statusAnnotation = "sidecar.istio.io/status"
	excludeRanges    = "traffic.sidecar.istio.io/excludeOutboundIPRanges"
	includeRanges    = "traffic.sidecar.istio.io/includeOutboundIPRanges"
	includePorts     = "traffic.sidecar.istio.io/includeOutboundPorts"
	interception     = "sidecar.istio.io/interceptionMode"
	skipLabel        = "istio-init-egress/skip"
	istioInit        = "istio-init"
	istioProxy       = "istio-proxy"
	defaultProxyID   = int64(1337)
)

var systemNamespaces = map[string]bool{
	"kube-system": true, "kube-public": true, "kube-node-lease": true, "local-path-storage": true,
}

var untouched = map[string]bool{
	istioInit: true, "istio-validation": true, istioProxy: true, "enable-core-dump": true,
	"grpc-bootstrap-init": true, "volume-permissions": true, "init-chown-data": true,
}

type remedy struct {
	decoder admission.Decoder
	ranges  []string
	byHand  bool
}

// Handle answers one review.
func (r *remedy) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.Kind.Kind != "Pod" || req.Kind.Group != "" {
		return admission.Allowed("")
	}
	pod := &corev1.Pod{}
	if err := r.decoder.Decode(req, pod); err != nil {
		return admission.Allowed("").WithWarnings("the Pod could not be read: " + err.Error())
	}
	verdict, cutOff := r.decide(pod, req.Namespace)
	if verdict != "needs-remedy" {
		return annotated(admission.Allowed(""), verdict, verdict)
	}
	value := r.merged(pod)
	reason := strings.Join(cutOff, ", ") + " cut off before the sidecar runs"
	response := r.patched(req.Object.Raw, pod, value)
	log.FromContext(ctx).Info("changed", "namespace", req.Namespace, "verdict", verdict, "reason", reason)
	return annotated(response, verdict, reason).WithWarnings(reason + ": set " + excludeRanges + "=" + value)
}

// patched makes the patch the way controller-runtime's own defaulters do, by comparing the Pod
// before and after; or by hand, one operation, which costs less.
func (r *remedy) patched(raw []byte, pod *corev1.Pod, value string) admission.Response {
	if r.byHand {
		path := "/metadata/annotations/" + strings.ReplaceAll(excludeRanges, "/", "~1")
		return admission.Patched("", jsonpatch.NewOperation("add", path, value))
	}
	pod.Annotations[excludeRanges] = value
	changed, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(raw, changed)
}

func annotated(response admission.Response, verdict, reason string) admission.Response {
	response.AuditAnnotations = map[string]string{"verdict": verdict, "reason": reason}
	return response
}

func (r *remedy) decide(pod *corev1.Pod, namespace string) (string, []string) {
	if systemNamespaces[namespace] {
		return "system-namespace", nil
	}
	if pod.Labels[skipLabel] == "true" {
		return "opted-out", nil
	}
	if _, injected := pod.Annotations[statusAnnotation]; !injected {
		return "not-injected", nil
	}
	own := false
	for _, c := range pod.Spec.InitContainers {
		own = own || !untouched[c.Name]
	}
	if !own {
		return "no-init-containers", nil
	}
	cutOff := cutOff(pod)
	if len(cutOff) == 0 {
		return "not-redirected", nil
	}
	helpless := make([]string, 0, len(cutOff))
	for _, c := range cutOff {
		if !exempt(c, pod) {
			helpless = append(helpless, c.Name)
		}
	}
	if len(helpless) == 0 {
		return "already-exempt", nil
	}
	if value, there := pod.Annotations[excludeRanges]; there && value == r.merged(pod) {
		return "already-excluded", nil
	}
	if index(pod.Spec.InitContainers, istioInit) >= 0 {
		return "beyond-remedy", helpless
	}
	return "needs-remedy", helpless
}

func cutOff(pod *corev1.Pod) []*corev1.Container {
	if !redirected(pod) {
		return nil
	}
	containers := pod.Spec.InitContainers
	first, end := index(containers, istioInit), index(containers, istioProxy)
	if end < 0 {
		end = len(containers)
	}
	var found []*corev1.Container
	for i := first + 1; i < end; i++ {
		if !untouched[containers[i].Name] {
			found = append(found, &containers[i])
		}
	}
	return found
}

func redirected(pod *corev1.Pod) bool {
	proxy := proxyOf(pod)
	if proxy == nil {
		return false
	}
	if len(proxy.Args) >= 2 && proxy.Args[0] == "proxy" && proxy.Args[1] != "sidecar" {
		return false
	}
	disabled := ""
	for _, e := range proxy.Env {
		if e.Name == "DISABLE_ENVOY" {
			disabled = e.Value
		}
	}
	if off, _ := strconv.ParseBool(disabled); off {
		return false
	}
	if pod.Annotations[interception] == "NONE" {
		return false
	}
	ranges, there := pod.Annotations[includeRanges]
	nothing := there && ranges == "" && strings.TrimSpace(pod.Annotations[includePorts]) == ""
	return !nothing || index(pod.Spec.InitContainers, istioInit) >= 0
}

func proxyOf(pod *corev1.Pod) *corev1.Container {
	if i := index(pod.Spec.InitContainers, istioProxy); i >= 0 {
		return &pod.Spec.InitContainers[i]
	}
	if i := index(pod.Spec.Containers, istioProxy); i >= 0 {
		return &pod.Spec.Containers[i]
	}
	return nil
}

func exempt(c *corev1.Container, pod *corev1.Pod) bool {
	uid, gid := defaultProxyID, defaultProxyID
	if proxy := proxyOf(pod); proxy != nil && proxy.SecurityContext != nil {
		uid = orDefault(proxy.SecurityContext.RunAsUser)
		gid = orDefault(proxy.SecurityContext.RunAsGroup)
	}
	var user, group *int64
	if c.SecurityContext != nil {
		user, group = c.SecurityContext.RunAsUser, c.SecurityContext.RunAsGroup
	}
	if shared := pod.Spec.SecurityContext; shared != nil {
		if user == nil {
			user = shared.RunAsUser
		}
		if group == nil {
			group = shared.RunAsGroup
		}
	}
	return user != nil && *user == uid || group != nil && *group == gid
}

func orDefault(id *int64) int64 {
	if id == nil || *id == 0 {
		return defaultProxyID
	}
	return *id
}

func (r *remedy) merged(pod *corev1.Pod) string {
	var elements []string
	seen := map[string]bool{}
	for _, element := range strings.Split(pod.Annotations[excludeRanges], ",") {
		if element = strings.TrimSpace(element); element != "" {
			elements = append(elements, element)
			seen[element] = true
		}
	}
	for _, element := range r.ranges {
		if !seen[element] {
			elements = append(elements, element)
		}
	}
	return strings.Join(elements, ",")
}

func index(containers []corev1.Container, name string) int {
	for i := range containers {
		if containers[i].Name == name {
			return i
		}
	}
	return -1
}

func main() {
	port := flag.Int("port", 9443, "the port to listen on")
	folder := flag.String("certificate", "", "the folder of tls.crt and tls.key")
	ranges := flag.String("ranges", "0.0.0.0/0,::/0", "the ranges to exclude")
	byHand := flag.Bool("by-hand", false, "make the patch by hand instead of by comparing")
	flag.Parse()
	log.SetLogger(zap.New())

	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		fail(err)
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	handler := &remedy{decoder: admission.NewDecoder(scheme), ranges: strings.Split(*ranges, ","), byHand: *byHand}
	server := webhook.NewServer(webhook.Options{
		Host: "127.0.0.1", Port: *port, CertDir: *folder,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }},
	})
	server.Register("/", &webhook.Admission{Handler: handler})
	if err := server.Start(context.Background()); err != nil {
		fail(err)
	}
}

func fail(err error) {
	log.Log.Error(err, "cannot serve")
	os.Exit(1)
}
