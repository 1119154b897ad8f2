package kubectl

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
)

const (
	tracedToken = "JTI=3e61a579-7bca-4b01-b07b-41db21f511e0"
	tracedLeaf  = "X509SHA256=28b3f3c801b8637374f88de01cdf5280812f909c78f06ecd298c990cb4522a6b"
	adminsToken = "JTI=5c8b11b5-cc17-4a0c-8c6b-3f2f1ee51c5b"
	adminsLeaf  = "X509SHA256=abababababababababababababababababababababababababababababababab"
	requestUID  = "0d8ad3a4-0b2a-4f02-8a01-06f6bd0a5a5f"
)

// auditEvent is an event as kube-apiserver writes it at level Metadata.
func auditEvent(id, user, credential, verb, object, annotation string) string {
	return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"` + id + `","stage":"ResponseComplete","verb":"` + verb +
		`","user":{"username":"` + user + `","extra":{"authentication.kubernetes.io/credential-id":["` + credential + `"]}},"sourceIPs":["10.0.0.1"],"userAgent":"test/1",` +
		`"objectRef":{` + object + `},"responseStatus":{"metadata":{},"code":200},"stageTimestamp":"2026-03-01T12:00:00.000000Z","annotations":{` + annotation + "}}\n"
}

// auditLog is a log in which a node and an administrator each requested a token of one pod, and both were used.
func auditLog() string {
	const object = `"resource":"serviceaccounts","subresource":"token","namespace":"shop","name":"cart"`
	issued := func(id string) string {
		return `"authentication.kubernetes.io/issued-credential-id":"` + id + `"`
	}
	return auditEvent("a-1", "system:node:node-1", tracedLeaf, "create", object, issued(tracedToken)) +
		auditEvent("a-2", "admin", adminsLeaf, "create", object, issued(adminsToken)) +
		auditEvent("a-3", "system:serviceaccount:shop:cart", tracedToken, "list", `"resource":"secrets"`, "") +
		auditEvent("a-4", "controller", "JTI=1", "update", `"resource":"certificatesigningrequests","subresource":"approval","name":"csr-2","uid":"`+requestUID+`"`, "") +
		auditEvent("a-5", "controller", "JTI=1", "update", `"resource":"nodes","name":"csr-3","uid":"uid-9"`, "")
}

// tracedNode is the record of the node, with a change.
func tracedNode(change func(*v1alpha1.AttestedNodeSpec)) *v1alpha1.AttestedNode {
	end := metav1.NewTime(time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC))
	n := &v1alpha1.AttestedNode{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "AttestedNode"}, ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec: v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", Machine: "ek:sha256:01", State: v1alpha1.NodeBound, Certificates: []v1alpha1.IssuedCertificate{
			{CredentialID: adminsLeaf, Machine: "ek:sha256:02"},
			{CredentialID: tracedLeaf, Machine: "ek:sha256:01", MachineUID: "uid-1", ProviderID: "sim://a/1", NodeUID: "uid-2", RequestUID: requestUID, KeyResidence: "TPM", FiledWith: adminsLeaf, NotAfter: end},
		}}}
	if change != nil {
		change(&n.Spec)
	}
	return n
}

// tracing is a plugin with the log in a file, and a cluster with some objects.
func tracing(t *testing.T, objects ...client.Object) *operated {
	t.Helper()
	o := operates(t, "", objects...)
	o.reach = func() error { return nil }
	o.auditLogs = []string{filepath.Join(t.TempDir(), "audit.log")}
	if err := os.WriteFile(o.auditLogs[0], []byte(auditLog()), 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

const tracedLinks = tracedToken + `
  requests      1, from 2026-03-01T12:00:00Z to 2026-03-01T12:00:00Z
  used by       system:serviceaccount:shop:cart
  from          10.0.0.1
  user agents   test/1
  issued        2026-03-01T12:00:00Z, for the service account shop/cart
  requested by  system:node:node-1 with ` + tracedLeaf + `, from 10.0.0.1, audit ID a-1
` + tracedLeaf + `
  requests      1, from 2026-03-01T12:00:00Z to 2026-03-01T12:00:00Z
  used by       system:node:node-1
  from          10.0.0.1
  user agents   test/1
`

const tracedMachine = `node node-1
  machine       ek:sha256:01
  machine UID   uid-1
  provider ID   sim://a/1
  Node UID      uid-2
  key in        TPM
  ends          2026-03-02T00:00:00Z
  record        Bound
  filed with    ` + adminsLeaf + `
  request       csr-2 (UID ` + requestUID + `), `

// TestTrace: a token goes back to the machine and to the request that certified it.
func TestTrace(t *testing.T) {
	filed := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-2", UID: requestUID, CreationTimestamp: metav1.NewTime(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))}}
	filed.Spec.Username = "system:bootstrap:abcdef"
	const byLog = "update of certificatesigningrequests/approval 2026-03-01T12:00:00Z by controller\n"
	for name, row := range map[string]struct {
		objects []client.Object
		records string
		want    string
	}{
		"with its request":      {[]client.Object{tracedNode(nil), filed}, "", tracedLinks + tracedMachine + "filed 2026-03-01T00:00:00Z by system:bootstrap:abcdef\n"},
		"by the log":            {[]client.Object{tracedNode(nil)}, "", tracedLinks + tracedMachine + byLog},
		"records in a file":     {nil, `{"kind":"List","items":[` + quoted(tracedNode(nil)) + `]}`, tracedLinks + tracedMachine + byLog},
		"of one certificate":    {[]client.Object{tracedNode(func(s *v1alpha1.AttestedNodeSpec) { s.Certificates = s.Certificates[1:] })}, "", tracedLinks + tracedMachine + byLog},
		"no request":            {[]client.Object{tracedNode(func(s *v1alpha1.AttestedNodeSpec) { s.Certificates[1].RequestUID = "" })}, "", "  request       not recorded\n"},
		"a request that is out": {[]client.Object{tracedNode(func(s *v1alpha1.AttestedNodeSpec) { s.Certificates[1].RequestUID = "uid-9" })}, "", "  request       UID uid-9, which is not in the logs, nor in the cluster if it was asked\n"},
		"another machine by now": {[]client.Object{tracedNode(func(s *v1alpha1.AttestedNodeSpec) {
			s.Machine, s.State, s.Pending = "ek:sha256:03", v1alpha1.NodeResting, new(v1alpha1.PendingChange)
		})}, "", "  machine       ek:sha256:01\n  machine UID   uid-1\n  provider ID   sim://a/1\n  Node UID      uid-2\n  key in        TPM\n  ends          2026-03-02T00:00:00Z\n" +
			"  record        Resting; the machine is now ek:sha256:03; a change is under way\n"},
	} {
		t.Run(name, func(t *testing.T) {
			o := tracing(t, row.objects...)
			if row.records != "" {
				o.records = filepath.Join(t.TempDir(), "records.json")
				if err := os.WriteFile(o.records, []byte(row.records), 0o600); err != nil {
					t.Fatal(err)
				}
				o.reach = func() error { return errors.New("the cluster is not asked") }
			}
			if err := o.trace(t.Context(), []string{tracedToken}); err != nil {
				t.Fatal(err)
			}
			if got := o.out.String(); !strings.Contains(got, row.want) {
				t.Errorf("got\n%s\nwant\n%s", got, row.want)
			}
		})
	}
}

// TestTraceEndsElsewhere: the chain is printed, and the error says at which node it ended, or why at none.
func TestTraceEndsElsewhere(t *testing.T) {
	offline := errors.New("no configuration")
	for name, row := range map[string]struct {
		id      string
		record  *v1alpha1.AttestedNode
		reach   error
		out, by string
	}{
		"an administrator's": {adminsToken, tracedNode(nil), nil, "requested by  admin with " + adminsLeaf, "audit-not-a-node: got admin with " + adminsLeaf},
		"no event":           {"JTI=none", tracedNode(nil), nil, "JTI=none\n  requests      none in the logs\n", "audit-no-event: got no TokenRequest that issued JTI=none"},
		"no cluster":         {tracedToken, nil, offline, tracedLinks, "the chain ends at node node-1; its AttestedNode, which names the machine, was not read: no configuration"},
		"no record":          {tracedToken, nil, nil, tracedLinks, "the chain ends at node node-1, which has no AttestedNode"},
		"no evidence":        {tracedToken, tracedNode(func(s *v1alpha1.AttestedNodeSpec) { s.Scope = "insecure document" }), nil, tracedLinks, "a node without evidence: no machine was verified"},
		"another certificate": {tracedToken, tracedNode(func(s *v1alpha1.AttestedNodeSpec) { s.Certificates = s.Certificates[:1] }), nil, tracedLinks,
			"the chain ends at a certificate of node node-1 that is not in its AttestedNode: it was not issued through attestation, or it has ended; --records takes the AttestedNodes of a backup; the record is in state Bound and has machine ek:sha256:01"},
		"no credential": {"token", tracedNode(nil), nil, "", `credential-id: got token, want JTI=<token ID> or X509SHA256=<64 lower-case hexadecimal digits>`},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			if row.record != nil {
				objects = append(objects, row.record)
			}
			o := tracing(t, objects...)
			o.reach = func() error { return row.reach }
			err := o.trace(t.Context(), []string{row.id})
			if err == nil || !strings.Contains(err.Error(), row.by) || !errors.Is(err, row.reach) && row.reach != nil {
				t.Errorf("got %v, want %s", err, row.by)
			}
			if got := o.out.String(); !strings.Contains(got, row.out) || strings.Contains(got, "machine  ") {
				t.Errorf("got\n%s\nwant\n%s", got, row.out)
			}
		})
	}
}

// TestTraceRequestUnread: if the requests cannot be listed, the machine is shown, and the error says so.
func TestTraceRequestUnread(t *testing.T) {
	o := tracing(t, tracedNode(nil))
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	var err error
	if o.api, err = requests.Client(&rest.Config{Host: server.URL}, server.Client(), o.client.Scheme()); err != nil {
		t.Fatal(err)
	}
	if err := o.trace(t.Context(), []string{tracedToken}); !apierrors.IsNotFound(err) || !strings.Contains(o.out.String(), "  machine       ek:sha256:01\n") {
		t.Errorf("got %v\n%s", err, &o.out)
	}
}

// TestTraceLogs: a log is a regular file, which may be compressed.
func TestTraceLogs(t *testing.T) {
	o := tracing(t, tracedNode(nil))
	dir := t.TempDir()
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write([]byte(auditLog())); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"audit.log.gz": compressed.Bytes(), "cut.gz": compressed.Bytes()[:compressed.Len()/2], "head.gz": compressed.Bytes()[:5], "empty": nil, "short": {0x1f}}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := o.auditLogs[0]
	for name, row := range map[string]struct {
		logs []string
		want string
	}{
		"compressed":     {[]string{filepath.Join(dir, "audit.log.gz")}, ""},
		"two files":      {[]string{filepath.Join(dir, "empty"), filepath.Join(dir, "short"), own}, ""},
		"standard input": {[]string{own, "-"}, "audit log -: standard input cannot be read again"},
		"a folder":       {[]string{own, dir}, "no regular file"},
		"a device":       {[]string{os.DevNull}, "no regular file"},
		"no file":        {[]string{own, filepath.Join(dir, "none")}, "no such file"},
		"cut off":        {[]string{own, filepath.Join(dir, "cut.gz")}, "cut.gz: unexpected EOF"},
		"half a head":    {[]string{own, filepath.Join(dir, "head.gz")}, "head.gz: unexpected EOF"},
		"no events":      {[]string{filepath.Join(dir, "empty")}, "audit-log: got no events"},
	} {
		t.Run(name, func(t *testing.T) {
			o.auditLogs = row.logs
			err := o.trace(t.Context(), []string{tracedToken})
			if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("got %v, want %s", err, row.want)
			}
		})
	}
	for _, ids := range [][]string{nil, {tracedToken, tracedToken}} {
		if err := o.trace(t.Context(), ids); !errors.Is(err, errUsage) {
			t.Errorf("%d credentials: got %v", len(ids), err)
		}
	}
	o.auditLogs = nil
	if err := o.trace(t.Context(), []string{tracedToken}); !errors.Is(err, errUsage) {
		t.Errorf("no log: got %v", err)
	}
	o.auditLogs, o.records = []string{own}, filepath.Join(dir, "none")
	if err := o.trace(t.Context(), []string{tracedToken}); err == nil || !strings.Contains(err.Error(), "was not read: --records: ") {
		t.Errorf("no records: got %v", err)
	}
}

// TestTraceUnreadLines: lines that were not searched are told, although the chain leads to a machine: the uses
// of the token may be in them.
func TestTraceUnreadLines(t *testing.T) {
	o := tracing(t, tracedNode(nil))
	unread := auditEvent("a-9", "system:serviceaccount:shop:cart", tracedToken, "create", `"resource":"pods"`, `"a":"","A":""`)
	if err := os.WriteFile(o.auditLogs[0], []byte(auditLog()+unread), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "the logs have 5 events from 2026-03-01T12:00:00Z to 2026-03-01T12:00:00Z; lines that cannot be read: 1\n"
	if err := o.trace(t.Context(), []string{tracedToken}); err != nil || !strings.Contains(o.out.String(), want) {
		t.Errorf("got %v\n%s", err, &o.out)
	}
}

// TestTraceShowsAll: several events for one token are shown, impersonation and lists that are cut.
func TestTraceShowsAll(t *testing.T) {
	o := tracing(t)
	log := auditLog()
	log += strings.ReplaceAll(strings.ReplaceAll(log[:strings.Index(log, "\n")+1], "a-1", "a-6"), `"sourceIPs"`, `"impersonatedUser":{"username":"system:node:node-9"},"sourceIPs"`)
	for i := range 20 {
		var e map[string]any
		if err := json.Unmarshal([]byte(auditEvent("b", "system:serviceaccount:shop:cart", tracedToken, "list", `"resource":"secrets"`, "")), &e); err != nil {
			t.Fatal(err)
		}
		e["userAgent"] = strings.Repeat("x", i+1)
		log += quoted(e) + "\n"
	}
	if err := os.WriteFile(o.auditLogs[0], []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	err := o.trace(t.Context(), []string{tracedToken})
	if err == nil || !strings.Contains(err.Error(), "audit-conflict") {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{"audit ID a-1", "system:node:node-1 as system:node:node-9 with " + tracedLeaf, "  and others    of users, addresses and agents, the first 16 are shown", "  requests      21, "} {
		if !strings.Contains(o.out.String(), want) {
			t.Errorf("want %q in\n%s", want, &o.out)
		}
	}
}

// TestTraceForgedNames: a user or a credential of another issuer that spells the rest of a line is quoted.
func TestTraceForgedNames(t *testing.T) {
	o := tracing(t, tracedNode(nil))
	const user, id = "system:node:node-1 with " + tracedLeaf + ", from 10.0.0.1, audit ID a-1", "JTI=x, from 10.0.0.1"
	forged := auditEvent("a-9", user, id, "create", `"resource":"serviceaccounts","subresource":"token","namespace":"shop","name":"cart"`,
		`"authentication.kubernetes.io/issued-credential-id":"JTI=stolen"`)
	if err := os.WriteFile(o.auditLogs[0], []byte(forged), 0o600); err != nil {
		t.Fatal(err)
	}
	err := o.trace(t.Context(), []string{"JTI=stolen"})
	if err == nil || !strings.Contains(o.out.String(), `requested by  "`+user+`" with "`+id+`", from 10.0.0.1`) || !strings.Contains(o.out.String(), `used by       "`+user+`"`) {
		t.Errorf("got %v\n%s", err, &o.out)
	}
}
