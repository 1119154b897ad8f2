package node

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const goodToken = "abcdef.0123456789abcdef"

// patient is a machine for doctor: its files, and the API server of its cluster.
type patient struct {
	t      *testing.T
	dir    string
	server *httptest.Server
	may    bool
	calls  []string
	now    func() time.Time
}

func newPatient(t *testing.T) *patient {
	p := &patient{t: t, dir: t.TempDir(), may: true, now: time.Now}
	p.server = httptest.NewTLSServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.server.Close)
	return p
}

func (p *patient) serve(w http.ResponseWriter, r *http.Request) {
	token, has := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	p.calls = append(p.calls, r.Method+" "+r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	send := func(code int, object any) {
		w.WriteHeader(code)
		testkit.MustDo(json.NewEncoder(w).Encode(object))
	}
	switch {
	case r.URL.Path == "/version":
		if has {
			p.t.Error("the first contact has a credential")
		}
		send(200, map[string]string{"major": "1"})
	case token != goodToken:
		send(401, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized", "code": 401, "message": "Unauthorized"})
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		send(201, map[string]any{"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1", "status": map[string]any{"userInfo": map[string]string{"username": "system:bootstrap:abcdef"}}})
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		send(201, map[string]any{"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": map[string]bool{"allowed": p.may}})
	default:
		send(404, map[string]any{})
	}
}

func (p *patient) path(name string) string { return filepath.Join(p.dir, name) }

func (p *patient) write(name, text string) string {
	testkit.MustDo(os.WriteFile(p.path(name), []byte(text), 0o600))
	return p.path(name)
}

// examine runs doctor with these fields of evidence.tpm, and returns its exit status and output.
func (p *patient) examine(tpm string, ca []byte, user, kubelet string, args ...string) (int, string) {
	p.t.Helper()
	p.write("ca.crt", string(pemOf("CERTIFICATE", ca)))
	kubeconfig := p.write("kubeconfig", "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: '"+p.server.URL+"', certificate-authority: ca.crt}}]\n"+
		"users: [{name: u, user: {"+user+"}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n")
	file := p.write("config.yaml", "apiVersion: "+configfile.APIVersion+"\nkind: "+settingsKind+"\nnodeName: node-1\nstateDir: "+p.path("state")+"\nkubeconfig: "+kubeconfig+
		"\nevidence: {tpm: {"+tpm+"}}\nkubelet: {processes: false, flagFiles: [], config: "+
		p.write("kubelet.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nrotateCertificates: "+kubelet+"\n")+"}\n")
	var out, errs bytes.Buffer
	err := (&examination{now: p.now}).command(p.t.Context(), args, source{file, true, nil}, &out, &errs)
	if err != nil {
		errs.WriteString("kubelet-authenticator: " + err.Error() + "\n")
	}
	return exitStatus(err), out.String() + errs.String()
}

// TestDoctor examines machines with one thing wrong each: its line comes first, and nothing is written.
func TestDoctor(t *testing.T) {
	device, bare, locked := tpmsim.Swtpm(t, tpmsim.Options{}), tpmsim.Swtpm(t, tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{}}), tpmsim.Swtpm(t, tpmsim.Options{})
	foreign := testkit.Must(tpmsim.NewCA(tpmsim.CAOptions{}))
	guess(t, device, 1)
	guess(t, locked, 40)
	paths := map[string]string{"ok": devicePath(device), "bare": devicePath(bare), "locked": devicePath(locked), "absent": "/nonexistent"}
	var all string
	for _, c := range []struct {
		name, device, user, kubelet string
		change                      func(p *patient)
		roots                       *tpmsim.CA
		foreignCA                   bool
		status                      int
		first                       string
	}{
		{name: "good", status: 0},
		{name: "good-roots", roots: device.CA(), status: 0},
		{name: "no-tpm", device: "absent", status: 4, first: "device"},
		{name: "lockout", device: "locked", status: 4, first: "lockout"},
		{name: "no-certificate", device: "bare", status: 4, first: "chain"},
		{name: "other-maker", roots: foreign, status: 4, first: "chain"},
		{name: "clock", change: func(p *patient) { p.now = func() time.Time { return time.Now().AddDate(-1, 0, 0) } }, status: 4, first: "clock"},
		{name: "no-token", user: " ", status: 5, first: "token"},
		{name: "wrong-token", user: "token: abcdef.0000000000000000", status: 5, first: "token"},
		{name: "not-a-token", user: "token: hunter2", status: 5, first: "token"},
		{name: "other-ca", foreignCA: true, status: 5, first: "API server"},
		{name: "no-server", change: func(p *patient) { p.server.Close() }, status: 5, first: "API server"},
		{name: "policy", change: func(p *patient) { p.may = false }, status: 5, first: "policy"},
		{name: "rotate", kubelet: "true", status: 6, first: "kubelet"},
		{name: "two", device: "absent", kubelet: "true", status: 4, first: "device"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPatient(t)
			ca, args, roots := p.server.Certificate().Raw, []string(nil), "no roots"
			if c.foreignCA {
				ca = foreign.Root().Raw
			}
			if c.change != nil {
				c.change(p)
			}
			if c.roots != nil {
				roots = pemFile(t, c.roots)
				args = []string{"--roots", roots}
			}
			or := func(s, other string) string {
				if s == "" {
					return other
				}
				return s
			}
			status, out := p.examine("device: "+paths[or(c.device, "ok")], ca, or(c.user, "token: "+goodToken), or(c.kubelet, "false"), args...)
			if status != c.status || c.first != "" && !strings.HasPrefix(out, "BROKEN   "+c.first+" ") || strings.Contains(out, "BROKEN") != (c.first != "") {
				t.Errorf("status %d, want %d with %s first:\n%s", status, c.status, c.first, out)
			}
			for _, secret := range []string{"0123456789abcdef", "hunter2"} {
				if strings.Contains(out, secret) {
					t.Errorf("the output shows the token:\n%s", out)
				}
			}
			for _, call := range p.calls {
				if strings.Contains(call, "certificatesigningrequests") {
					t.Error("it files a request")
				}
			}
			if _, err := os.Stat(p.path("state")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it has made the folder: %v", err)
			}
			host := strings.TrimPrefix(p.server.URL, "https://")
			all += masked(c.name, out, host, "<server>", p.dir, "<dir>", roots, "<roots>", paths["ok"], "<tpm>", paths["bare"], "<tpm>", paths["locked"], "<tpm>")
		})
	}
	golden(t, "doctor", all)
	if n := counted(t, device); n != 1 {
		t.Errorf("the TPM has counted %d wrong passwords, want 1", n)
	}
}

// TestDoctorStateUnchanged: the folder stays as it is, with a certificate in it that cannot be read.
func TestDoctorStateUnchanged(t *testing.T) {
	p, device := newPatient(t), tpmsim.Swtpm(t, tpmsim.Options{})
	testkit.MustDo(os.Mkdir(p.path("state"), 0o700))
	testkit.MustDo(os.WriteFile(p.path("state/client.pem"), []byte("cut"), 0o600))
	before := testkit.Must(os.Stat(p.path("state")))
	status, out := p.examine("device: "+devicePath(device), p.server.Certificate().Raw, "token: "+goodToken, "false")
	after := testkit.Must(os.Stat(p.path("state")))
	if names := testkit.Must(os.ReadDir(p.path("state"))); status != 0 || len(names) != 1 || !before.ModTime().Equal(after.ModTime()) {
		t.Errorf("status %d, %d files:\n%s", status, len(names), out)
	}
}

// TestDoctorWithoutFile: a machine without any configuration is examined as far as that goes.
func TestDoctorWithoutFile(t *testing.T) {
	if _, err := os.Stat(defaultConfig); err == nil {
		t.Fatalf("this machine has a %s", defaultConfig)
	}
	status, out := runMain(nil, "doctor")
	if status != 4 || !strings.Contains(out, "BROKEN   device      ") || !strings.Contains(out, defaultKubeconfig) {
		t.Errorf("status %d:\n%s", status, out)
	}
	if status, _ := runMain(nil, "--config", "/nonexistent", "doctor"); status != 1 {
		t.Errorf("a named file that is absent: status %d", status)
	}
	if status, _ := runMain(nil, "doctor", "now"); status != 2 {
		t.Errorf("an argument: status %d", status)
	}
}

// TestNoTries: with a wrong password for a key whose wrong passwords the TPM counts, neither command tries it.
func TestNoTries(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{}})
	template := tpm.AKTemplateECDSAP256()
	template.ObjectAttributes.NoDA = false
	made := testkit.Must(tpm2.CreatePrimary{PrimaryHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHEndorsement, Auth: tpm2.PasswordAuth(nil)}, InPublic: tpm2.New2B(*template),
		InSensitive: tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{UserAuth: tpm2.TPM2BAuth{Buffer: []byte("right")}}}}.Execute(device))
	testkit.Must(tpm2.EvictControl{Auth: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)},
		ObjectHandle: &tpm2.NamedHandle{Handle: made.ObjectHandle, Name: made.Name}, PersistentHandle: 0x81020001}.Execute(device))
	testkit.Must(tpm2.FlushContext{FlushHandle: made.ObjectHandle}.Execute(device))
	public := testkit.Must(testkit.Must(statement.ParsePublic(made.OutPublic.Bytes())).Key())
	certificate := testkit.Must(device.CertifyAK(public))
	wrong := written(t, "password", []byte("wrong"))
	section := "device: " + devicePath(device) + ", akPasswordFile: " + wrong + `, ak: {handle: "0x81020001", certificatesFile: ` + written(t, "ak.pem", pemOf("CERTIFICATE", certificate.Raw)) + "}"
	p := newPatient(t)
	if status, out := p.examine(section, p.server.Certificate().Raw, "token: "+goodToken, "false"); status != 0 {
		t.Errorf("doctor: status %d\n%s", status, out)
	}
	if status, out := runMain(nil, "--config", p.path("config.yaml"), "identity", "--roots", pemFile(t, device.CA())); status != 0 || !strings.Contains(out, "AK:           P-256") || !strings.Contains(out, "profile TCG AK") {
		t.Errorf("identity: status %d\n%s", status, out)
	}
	if n := counted(t, device); n != 0 {
		t.Errorf("the TPM has counted %d wrong passwords", n)
	}
	k := testkit.Must(kindOf("{" + section + "}"))
	prover := testkit.Must(k.Open(t.Context()))
	err := prover.Use(t.Context(), attest.StageAnswer, func(s attest.Session) error {
		_, err := s.Answer(t.Context(), testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), &attest.Challenged{})
		return err
	})
	if n := counted(t, device); n != 1 {
		t.Errorf("the TPM counts no wrong password of this key: %d, %v", n, err)
	}
	testkit.MustDo(prover.Close())
}

// TestDoctorOfOthers: evidence of another kind is read once, and a machine without evidence has no device.
func TestDoctorOfOthers(t *testing.T) {
	rack := Evidence{Name: "rack", Open: func(func(any) error) (authenticator.Evidence, error) {
		return authenticator.EvidenceOf("rack", func(context.Context) (attest.Prover, error) { return nil, errors.New("slot 7 is empty") }), nil
	}}
	for section, want := range map[string]string{"{rack: {}}": "BROKEN   device      slot 7 is empty", "{none: {}}\nsignerName: " + csr.SignerClientInsecure: "ok       device      not used"} {
		file := written(t, "config.yaml", []byte("apiVersion: "+configfile.APIVersion+"\nkind: "+settingsKind+"\nnodeName: node-1\nkubeconfig: /nonexistent\nkubelet: {processes: false, flagFiles: [], config: ''}\nevidence: "+section+"\n"))
		if status, out := runMain([]Evidence{rack}, "--config", file, "doctor"); (status != 4) == strings.HasPrefix(want, "BROKEN") || !strings.Contains(out, want) {
			t.Errorf("%s: status %d\n%s", section, status, out)
		}
	}
}
