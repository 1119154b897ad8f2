package kube

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// searched are objects as the cluster has them; "harmless" in one is changed.
const searched = `
{apiVersion: v1, kind: Node, metadata: {name: kubelet-1}, status: {addresses: [{type: InternalIP, address: ADDRESS}], daemonEndpoints: {kubeletEndpoint: {Port: PORT}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: search, namespace: nodeattest-system}, spec: SPEC}
---
{apiVersion: v1, kind: ReplicationController, metadata: {name: search, namespace: nodeattest-system}, spec: {selector: {a: b}, template: TEMPLATE}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: search, namespace: nodeattest-system}, spec: {selector: {matchLabels: {a: b}}, template: TEMPLATE}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: search, namespace: nodeattest-system}, spec: {selector: {matchLabels: {a: b}}, template: TEMPLATE}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: search, namespace: nodeattest-system}, spec: {selector: {matchLabels: {a: b}}, template: TEMPLATE}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: search, namespace: nodeattest-system}, spec: {serviceName: s, selector: {matchLabels: {a: b}}, template: TEMPLATE}}
---
{apiVersion: batch/v1, kind: CronJob, metadata: {name: search, namespace: nodeattest-system}, spec: {schedule: "* * * * *", jobTemplate: {spec: {template: JOB}}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: search, namespace: nodeattest-system}, spec: {template: JOB}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: node-attestation, namespace: nodeattest-system}, data: {inventory.yaml: harmless}}
---
{apiVersion: v1, kind: Secret, metadata: {name: node-attestation-signer-ca, namespace: nodeattest-system}, data: {tls.key: CANARY}}
---
{apiVersion: nodeattest.github.io/v1alpha1, kind: AttestedNode, metadata: {name: search}, spec: {scope: ak, machine: "ak:sha256:00", providerID: "rack://harmless", state: Bound, lastEnd: "2100-01-01T00:00:00Z"}}
---
{apiVersion: nodeattest.github.io/v1alpha1, kind: AttestedMachine, metadata: {name: MACHINE}, spec: {machine: "search", nodeName: harmless, reservation: u/1}}
---
{apiVersion: nodeattest.github.io/v1alpha1, kind: AttestedMachineUID, metadata: {name: MACHINE}, spec: {machineUID: "search", nodeName: harmless, reservation: u/1}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: search}, webhooks: [WEBHOOK]}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: search}, webhooks: [WEBHOOK]}
`

func newSearch(t *testing.T) *search {
	t.Helper()
	s := &search{cluster: startCluster(t), canary: base64.StdEncoding.EncodeToString([]byte("the key of the signer")), objects: map[string]map[string]any{}}
	s.prepare(t)
	for _, name := range []string{"admission.yaml", "approval.yaml", "records.yaml", "insecure/records.yaml"} {
		s.apply(t, name)
	}
	s.startSigner(t)
	s.csr = s.plainFor(t, "node-1", csr.SignerKubeAPIServerClientKubelet)
	var err error
	if s.https, err = rest.TransportFor(s.user(t, "admin", "system:masters")); err != nil {
		t.Fatal(err)
	}
	kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if (r.Method == http.MethodGet || r.Method == http.MethodPost) && strings.HasPrefix(r.URL.Path, "/exec/") { // as a kubelet serves it
			s.entered.Add(1)
		}
	}))
	if kubelet.Listener, err = net.Listen("tcp", outward(t)+":0"); err != nil {
		t.Fatal(err)
	}
	kubelet.StartTLS()
	t.Cleanup(kubelet.Close)
	address, port, _ := net.SplitHostPort(kubelet.Listener.Addr().String())
	const spec = `{serviceAccountName: node-attestation-controller, NODE securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, containers: [{name: c, image: "registry.example/harmless",
  securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}`
	pod, template := strings.Replace(spec, "NODE", "nodeName: kubelet-1,", 1), strings.Replace(spec, "NODE", "", 1)
	job := strings.Replace(spec, "NODE", "restartPolicy: Never,", 1)
	text := strings.NewReplacer("ADDRESS", address, "PORT", port, "CANARY", s.canary, "SPEC", pod, "TEMPLATE", "{metadata: {labels: {a: b}}, spec: "+template+"}",
		"JOB", "{spec: "+job+"}", "MACHINE", pointer("search", "").GetName(),
		"WEBHOOK", `{name: search.example.com, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Ignore, clientConfig: {url: "https://harmless.example"}, rules: [{apiGroups: [none.example], apiVersions: [v1], operations: [CREATE], resources: [none]}]}`).Replace(searched)
	for manifest := range strings.SplitSeq(text, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(manifest), &o); err != nil {
			t.Fatalf("%v\n%s", err, manifest)
		}
		s.objects[o["kind"].(string)] = o
	}
	return s
}

// outward returns an address of this machine to which an API server passes requests on.
func outward(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("no address but that of the loopback interface")
	return ""
}

// served are the rights on the API server's resources, and writes the objects for them.
func (s *search) served(t *testing.T) (all []soleRight) {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(s.user(t, "admin", "system:masters"))
	if err != nil {
		t.Fatal(err)
	}
	lists, err := d.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	_, whole, err := d.ServerGroupsAndResources() // with subresources, and with every version
	if err != nil {
		t.Fatal(err)
	}
	preferred := map[string]string{} // versions, by group and resource
	for _, list := range lists {
		for _, r := range list.APIResources {
			group, version, _ := cutVersion(list.GroupVersion)
			preferred[group+"/"+r.Name] = version
		}
	}
	for _, list := range whole {
		group, version, _ := cutVersion(list.GroupVersion)
		for _, r := range list.APIResources {
			resource, _, _ := strings.Cut(r.Name, "/")
			if preferred[group+"/"+resource] != version {
				continue
			}
			for _, verb := range r.Verbs {
				all = append(all, soleRight{verb: verb, group: group, resource: r.Name, version: version, kind: r.Kind, namespaced: r.Namespaced})
			}
			if o := s.objects[r.Kind]; o != nil && r.Name == resource {
				s.write(t, &soleRight{group: group, resource: r.Name, version: version, namespaced: r.Namespaced}, o)
			}
		}
	}
	return all
}

func cutVersion(groupVersion string) (group, version string, ok bool) {
	if group, version, ok = strings.Cut(groupVersion, "/"); !ok {
		return "", groupVersion, true
	}
	return group, version, ok
}

// write makes an object of the search, or its data in one that is there.
func (s *search) write(t *testing.T, r *soleRight, o map[string]any) {
	t.Helper()
	status, text := s.do(t, s.https, http.MethodPost, r.path(""), o, nil)
	if status != http.StatusCreated {
		t.Fatalf("%s: %d %s", r.resource, status, text)
	}
	if o["kind"] == "Node" {
		var made map[string]any
		if err := json.Unmarshal(text, &made); err != nil {
			t.Fatal(err)
		}
		made["status"] = o["status"]
		if status, text := s.do(t, s.https, http.MethodPut, r.path("kubelet-1")+"/status", made, nil); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
}

// path is that of a resource's objects, or of one or of its subresource.
func (r *soleRight) path(name string) string {
	at := "/api/v1"
	if r.group != "" {
		at = "/apis/" + r.group + "/" + r.version
	}
	if r.namespaced {
		at += "/namespaces/" + namespace
	}
	resource, subresource, _ := strings.Cut(r.resource, "/")
	at += "/" + resource
	if name != "" {
		at += "/" + name
	}
	if subresource != "" {
		at += "/" + subresource
	}
	return at
}

// do sends a request and returns the status and the body.
func (s *search) do(t *testing.T, as http.RoundTripper, method, at string, body any, header map[string]string) (int, []byte) {
	t.Helper()
	var text io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.NewReader(encoded)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.url+at, text)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := as.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return response.StatusCode, nil
	}
	answer, _ := io.ReadAll(io.LimitReader(response.Body, 4<<20))
	return response.StatusCode, answer
}

// give has a user for each right, who has it alone.
func (s *search) give(t *testing.T, chosen []soleRight) {
	t.Helper()
	s.users = make([]http.RoundTripper, len(chosen))
	if err := s.admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "search-usable"}, Rules: usable()}); err != nil {
		t.Fatal(err)
	}
	queue, errs := make(chan int), make(chan error, len(chosen))
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for i := range queue {
				role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("search-%d", i)}, Rules: []rbacv1.PolicyRule{chosen[i].rule()}}
				err := s.admin.Create(t.Context(), role)
				for _, name := range []string{role.Name, "search-usable"} {
					if err == nil {
						err = s.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "search-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
							Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: userOf(i)}}})
					}
				}
				errs <- err
			}
		})
	}
	for i := range chosen {
		queue <- i
	}
	close(queue)
	wait.Wait()
	for range chosen {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	for i := range chosen {
		var err error
		config := s.user(t, userOf(i))
		config.NextProtos = []string{"http/1.1"} // for upgrades
		if s.users[i], err = rest.TransportFor(config); err != nil {
			t.Fatal(err)
		}
	}
	for i := range chosen { // until the authorizer has seen them all
		r := &chosen[i]
		resource, subresource, _ := strings.Cut(r.resource, "/")
		eventually(t, func() error {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: userOf(i),
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: r.verb, Group: r.group, Resource: resource, Subresource: subresource}}}
			if err := s.admin.Create(t.Context(), review); err != nil || !review.Status.Allowed {
				return fmt.Errorf("%s is not allowed yet: %v", r, err)
			}
			return nil
		})
	}
}

// userOf is the name of the user with a right: that of a node, without its group.
func userOf(i int) string { return fmt.Sprintf("%ssearch-%d", csr.NodeUserPrefix, i) }

// said are the rights that the page excludes from the search with a reason.
func (s *search) said(t *testing.T) map[string]string {
	t.Helper()
	page := controlplane.Read(t, filepath.Join("..", "..", "docs", "enforcing.md"))
	said := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| ([a-z:, -]+) \\| `([a-z/, ]+)` \\| ([^|]+) \\|$").FindAllStringSubmatch(string(page), -1) {
		for verb := range strings.SplitSeq(row[1], ", ") {
			for resource := range strings.SplitSeq(row[2], ", ") {
				said[verb+" "+resource] = row[3]
			}
		}
	}
	return said
}
