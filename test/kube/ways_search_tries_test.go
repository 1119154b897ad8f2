package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/csr"
)

// try returns the gain of a user by a right; empty: nothing. With "!", it is the thing itself: a
// certificate, an identity, a token, the keys, or a way into a program; otherwise a write of which
// it is not said what comes of it.
func (s *search) try(t *testing.T, i int, r *soleRight) string {
	t.Helper()
	as := s.users[i]
	if r.version == "" {
		return s.tryVirtual(t, i, r)
	}
	switch r.resource {
	case "serviceaccounts/token":
		body := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{"expirationSeconds": 3600}}
		if status, text := s.do(t, as, http.MethodPost, r.path("node-attestation-controller"), body, nil); status == http.StatusCreated && bytes.Contains(text, []byte(`"token":"ey`)) {
			return "!the controller's token"
		}
		return ""
	case "pods/exec", "nodes/proxy":
		return s.tryEnter(t, as, r)
	}
	name := "search"
	o := s.objects[r.kind]
	if o != nil {
		name = o["metadata"].(map[string]any)["name"].(string)
	}
	if r.resource == "secrets" {
		name = "node-attestation-signer-ca"
	}
	const dry = "?dryRun=All&fieldManager=search"
	var status int
	var text []byte
	switch r.verb {
	case "get":
		status, text = s.do(t, as, http.MethodGet, r.path(name), nil, nil)
	case "list":
		status, text = s.do(t, as, http.MethodGet, r.path(""), nil, nil)
	case "watch":
		status, text = s.do(t, as, http.MethodGet, r.path("")+"?watch=1&timeoutSeconds=1", nil, nil)
	case "create":
		at := r.path("")
		if strings.Contains(r.resource, "/") {
			at = r.path(name)
		}
		status, text = s.do(t, as, http.MethodPost, at+dry, renamed(r, o), nil)
	case "update":
		status, text = s.do(t, as, http.MethodPut, r.path(name)+dry, s.changed(t, r, name), nil)
	case "patch":
		status, text = s.do(t, as, http.MethodPatch, r.path(name)+dry, s.changed(t, r, name), nil)
	case "delete":
		status, text = s.do(t, as, http.MethodDelete, r.path(name)+dry, s.current(t, r, name), nil)
	case "deletecollection":
		status, text = s.do(t, as, http.MethodDelete, r.path("")+dry+"&fieldSelector=metadata.name%3D"+name, s.current(t, r, name), nil)
	}
	switch {
	case bytes.Contains(text, []byte(s.canary)):
		return "!the keys"
	case slices.Contains([]string{"get", "list", "watch"}, r.verb) || status == http.StatusForbidden || status == http.StatusMethodNotAllowed:
		return ""
	case o != nil && !strings.Contains(r.resource, "/") && status/100 != 2: // a real change of a real object
		return ""
	}
	return fmt.Sprintf("%s %s: %d", r.verb, name, status)
}

// renamed is an object to create: one that is there, under another name.
func renamed(r *soleRight, o map[string]any) map[string]any {
	made := map[string]any{"apiVersion": strings.TrimPrefix(r.group+"/"+r.version, "/"), "kind": r.kind, "metadata": map[string]any{"name": "search"}}
	for key, value := range o {
		if key != "metadata" && key != "status" && r.kind != "Secret" {
			made[key] = value
		}
	}
	if o != nil {
		name := "another"
		if r.kind == "AttestedMachine" || r.kind == "AttestedMachineUID" {
			name = pointer("another", "").GetName()
		}
		made["metadata"] = map[string]any{"name": name}
	}
	return made
}

// current is the condition that the version is deleted that the user knows.
func (s *search) current(t *testing.T, r *soleRight, name string) map[string]any {
	t.Helper()
	var o struct {
		Metadata struct{ ResourceVersion, UID string }
	}
	_, text := s.do(t, s.https, http.MethodGet, r.path(name), nil, nil)
	_ = json.Unmarshal(text, &o) // nothing, if it is not there
	if o.Metadata.UID == "" {
		return nil
	}
	return map[string]any{"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": []string{"All"}, "preconditions": map[string]any{"resourceVersion": o.Metadata.ResourceVersion}}
}

// changed is an object with another content, or with an annotation.
func (s *search) changed(t *testing.T, r *soleRight, name string) map[string]any {
	t.Helper()
	status, text := s.do(t, s.https, http.MethodGet, r.path(name), nil, nil)
	if status != http.StatusOK {
		return renamed(r, nil)
	}
	var o map[string]any
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte("harmless"), []byte("evil")), &o); err != nil {
		t.Fatal(err)
	}
	metadata, _ := o["metadata"].(map[string]any)
	if metadata != nil {
		delete(metadata, "managedFields")
		metadata["annotations"] = map[string]any{"search": "1"}
	}
	return o
}

// tryEnter has a kubelet run something in a container of the controller.
func (s *search) tryEnter(t *testing.T, as http.RoundTripper, r *soleRight) string {
	t.Helper()
	at := "/api/v1/namespaces/" + namespace + "/pods/search/exec?command=id&container=c&stdout=true"
	if r.resource == "nodes/proxy" {
		at = "/api/v1/nodes/kubelet-1/proxy/exec/" + namespace + "/search/c?command=id&output=1"
	}
	method := map[string]string{"get": http.MethodGet, "create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete}[r.verb]
	before := s.entered.Load()
	var header map[string]string
	if r.resource == "pods/exec" {
		header = map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": "v4.channel.k8s.io"}
		if method == http.MethodPost {
			header = map[string]string{"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}
		}
	}
	status, text := s.do(t, as, method, at, nil, header)
	for range 20 {
		if s.entered.Load() > before {
			return "!a program's container"
		}
		if status == http.StatusForbidden {
			return ""
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%d %.200s", status, text)
	return ""
}

// tryVirtual tries rights that concern no resource.
func (s *search) tryVirtual(t *testing.T, i int, r *soleRight) string {
	t.Helper()
	as := s.users[i]
	rbac := &soleRight{group: rbacv1.GroupName, version: "v1"}
	binding := map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "search-evil"},
		"roleRef": map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": "cluster-admin"}, "subjects": []any{map[string]any{"apiGroup": rbacv1.GroupName, "kind": "User", "name": userOf(i)}}}
	role := map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "search-evil"},
		"rules": []any{map[string]any{"verbs": []any{"*"}, "apiGroups": []any{"*"}, "resources": []any{"*"}}}}
	rbac.resource = "cluster" + strings.TrimPrefix(r.resource, "cluster")
	if rbac.namespaced = r.resource == "roles"; rbac.namespaced {
		rbac.resource, role["kind"], binding["kind"] = "roles", "Role", "RoleBinding"
		binding["roleRef"] = map[string]any{"apiGroup": rbacv1.GroupName, "kind": "Role", "name": "node-attestation-controller"}
	}
	switch r.verb {
	case "bind":
		rbac.resource = strings.TrimSuffix(rbac.resource, "s") + "bindings"
		if status, _ := s.do(t, as, http.MethodPost, rbac.path("")+"?dryRun=All", binding, nil); status == http.StatusCreated {
			return "!every right of a role"
		}
	case "escalate":
		if status, _ := s.do(t, as, http.MethodPost, rbac.path("")+"?dryRun=All", role, nil); status == http.StatusCreated {
			return "!every right"
		}
	case "approve", "sign", "attest", "create":
		return s.tryRequest(t, i, r)
	default:
		return s.tryImpersonate(t, as, r)
	}
	return ""
}

// tryRequest files the request of a node and, if that is the right, approves it or waits for its approval.
func (s *search) tryRequest(t *testing.T, i int, r *soleRight) string {
	t.Helper()
	spec := s.csr
	if strings.HasSuffix(r.resource, "/selfnodeclient") {
		spec = s.plainFor(t, strings.TrimPrefix(userOf(i), csr.NodeUserPrefix), csr.SignerKubeAPIServerClientKubelet)
	}
	me := s.client(t, s.user(t, userOf(i)))
	o := requestOf(spec)
	if err := me.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if r.verb != "create" {
		o.Status.Conditions = condition(certificatesv1.CertificateApproved)
		if err := me.SubResource("approval").Update(t.Context(), o); err != nil {
			return ""
		}
	}
	for range 100 {
		if err := me.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		if len(o.Status.Certificate) != 0 {
			return "!a node's certificate"
		}
		if strings.HasSuffix(r.resource, "/selfnodeserver") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return ""
}

// tryImpersonate acts as nodes, or as users who may make one.
func (s *search) tryImpersonate(t *testing.T, as http.RoundTripper, r *soleRight) string {
	t.Helper()
	review := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
	for want, header := range map[string]map[string]string{
		csr.NodeUserPrefix + "node-1":    {"Impersonate-User": csr.NodeUserPrefix + "node-1"},
		"system:kube-controller-manager": {"Impersonate-User": "system:kube-controller-manager"},
		controllerUser:                   {"Impersonate-User": controllerUser},
		"system:masters":                 {"Impersonate-User": "alice", "Impersonate-Group": "system:masters"},
		csr.NodesGroup:                   {"Impersonate-User": "alice", "Impersonate-Group": csr.NodesGroup},
		"uid-of-another-user":            {"Impersonate-User": "alice", "Impersonate-Uid": "uid-of-another-user"},
		"all":                            {"Impersonate-User": "alice", "Impersonate-Extra-Scopes": "all"},
	} {
		status, text := s.do(t, as, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, header)
		if status == http.StatusCreated && bytes.Contains(text, []byte(`"`+want+`"`)) {
			if header["Impersonate-Uid"]+header["Impersonate-Extra-Scopes"] != "" {
				return "another word about alice"
			}
			return "!the identity of " + want
		}
	}
	return ""
}
