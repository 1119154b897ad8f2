package kubectl

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
	"github.com/nodeattest/nodeattest/kube/program/internal/observed"
)

// foreign acts on terminals: CSI in one character, a change of the direction of writing, escapes, a
// backspace, and a tag outside the basic plane that shows nothing.
const foreign = "\u009b31m\u202egpj\x1b[2J\x7f\U000e0041"

// TestForeignBytes has every command print what another has written. Nothing of it acts on a terminal,
// and it can still be seen.
func TestForeignBytes(t *testing.T) {
	inFile := func(file string) func(*testing.T) (*operated, []string) {
		return func(t *testing.T) (*operated, []string) {
			files := fixtures(t)
			o := operates(t, "")
			dir := t.TempDir()
			var object map[string]any
			if err := json.Unmarshal(files[file], &object); err != nil {
				t.Fatal(err)
			}
			object["metadata"].(map[string]any)["name"] = foreign
			text := string(ascii([]byte(quoted(object))))
			files[file] = []byte(strings.ReplaceAll(text, `\udb40\udc41`, "\U000e0041")) // the reader's YAML knows no pairs
			for name, text := range files {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			o.config, o.keyRing, o.records = "config.yaml", "ring.json", "records.json"
			return o, []string{file}
		}
	}
	request := func(t *testing.T) *certificatesv1.CertificateSigningRequest {
		o := refusedHello(t, "request-1", "node-1", honest)
		o.Spec.Username = foreign
		o.Status.Conditions[0].Message = foreign
		return o
	}
	record := func(set func(o *operated), objects ...client.Object) func(*testing.T) (*operated, []string) {
		return func(t *testing.T) (*operated, []string) {
			o := operates(t, strangeInventory, append(objects, &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: v1alpha1.AttestedNodeSpec{
				Scope: "strange document", Machine: "strange:" + foreign, MachineUID: "uid-0", ProviderID: foreign, State: v1alpha1.NodeBound}})...)
			o.in = strings.NewReader("y\n")
			set(o)
			return o, []string{"node-1"}
		}
	}
	given := map[string]func(*testing.T) (*operated, []string){
		"inspect": inFile("hello.json"),
		"verify":  inFile("answer.json"),
		"pending": func(t *testing.T) (*operated, []string) { return operates(t, "", request(t)), []string{"pending"} },
		"explain": func(t *testing.T) (*operated, []string) {
			return operates(t, "", request(t)), []string{"request-1"}
		},
		"approve": func(t *testing.T) (*operated, []string) {
			o := operates(t, strangeInventory, request(t))
			o.machine = thief
			return o, []string{"node-1"}
		},
		existingCommand: func(t *testing.T) (*operated, []string) {
			o := operates(t, strangeInventory, request(t), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
			return o, []string{"node-1"}
		},
		goneCommand: func(t *testing.T) (*operated, []string) {
			o := operates(t, "", heldNode("node-1", func(n *v1alpha1.AttestedNode) { n.Annotations[clusterapi.AnnotationMachine] = foreign }))
			return o, []string{""}
		},
		"pool shut": func(t *testing.T) (*operated, []string) { return operates(t, ""), []string{foreign} },
		"pool open": func(t *testing.T) (*operated, []string) { return operates(t, ""), []string{foreign} },
		"observed": func(t *testing.T) (*operated, []string) {
			table := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: observed.ConfigMap}, Data: map[string]string{
				"node-1": `{"request":"a","requester":` + quoted(foreign) + `,"reason":"b","message":"c","time":"2026-03-02T12:00:00Z"}`}}
			return operates(t, "", table, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + foreign}}), []string{"observed"}
		},
		"static-policies": func(t *testing.T) (*operated, []string) {
			o := operates(t, "")
			o.in = strings.NewReader(strings.Replace(enforced(t), "name: node-attestation-signers\n", "name: "+strconv.QuoteToASCII(foreign)+"\n  unknown: field\n", 1))
			return o, []string{"-"}
		},
		"trace": func(t *testing.T) (*operated, []string) {
			o := tracing(t)
			log := strings.Replace(auditLog(), `"admin"`, quoted(foreign), 1)
			if err := os.WriteFile(o.auditLogs[0], []byte(log), 0o600); err != nil {
				t.Fatal(err)
			}
			return o, []string{adminsToken}
		},
		"measurements": func(t *testing.T) (*operated, []string) {
			boot := bootOf(0xaa, foreign)
			boot.Machine, boot.Wrong, boot.PCRs["7"] = foreign, []string{foreign}, foreign
			return operates(t, "", nodeWith("node-1", boot, nil)), []string{"node-1"}
		},
		"measurements diff": func(t *testing.T) (*operated, []string) {
			boot := bootOf(0xaa, foreign)
			boot.PCRs["7"] = foreign
			return operates(t, "", nodeWith("node-1", boot, bootOf(0xaa, "On"))), []string{"node-1"}
		},
		"measurements export": func(t *testing.T) (*operated, []string) {
			return operates(t, "", nodeWith("node-1", bootOf(0xaa, foreign), nil)), []string{"node-1"}
		},
		"nodes":   record(func(*operated) {}),
		"rebind":  record(func(o *operated) { o.machine, o.force = "strange:3", true }),
		"adopt":   record(func(o *operated) { o.providerID = "sim://a/1" }),
		"release": record(func(*operated) {}),
		"token": record(func(o *operated) {
			var n v1alpha1.AttestedNode
			_ = o.client.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &n)
			n.Spec.Scope = "ak"
			_ = o.client.Update(t.Context(), &n)
		}),
		"cluster-info show":   published(func(*operated, string) {}),
		"cluster-info verify": published(func(o *operated, token string) { o.in, o.tokenFile = strings.NewReader(token), "-" }),
		"cluster-info publish": published(func(o *operated, _ string) {
			o.publishServer, o.ca, o.replace = "https://127.0.0.1:1", "ca.crt", true
			now := o.now().Add(time.Hour) // when the CA has ended
			o.now = func() time.Time { return now }
		}),
	}
	for _, c := range commands() {
		t.Run(c.name, func(t *testing.T) {
			make := given[c.name]
			if make == nil {
				t.Fatalf("no foreign bytes are given to %s", c.name)
			}
			o, args := make(t)
			var err error
			if c.files != nil {
				err = c.files(o.plugin, t.Context(), args)
			} else {
				err = c.run(o.plugin, t.Context(), args[0])
			}
			out := o.out.String() + o.err.String()
			if status, ok := errors.AsType[exitStatus](err); err != nil && !ok {
				report(o.streams.err, err)
				out = o.out.String() + o.err.String()
			} else if ok {
				t.Logf("status %d", status)
			}
			for _, r := range out {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Errorf("%U is printed:\n%q", r, out)
					break
				}
			}
			if !strings.Contains(out, `\u009b31m`) {
				t.Errorf("the escaped text is not shown:\n%q", out)
			}
			if c.name == "verify" {
				var f struct{ Request string }
				if err := json.Unmarshal(o.out.Bytes(), &f); err != nil || f.Request != foreign {
					t.Errorf("got %q, %v", f.Request, err)
				}
			}
		})
	}
}

// published is a discovery document with foreign bytes in the CA's name and in the ID of a token. ca.crt is
// the CA, and set is given the token that signed it.
func published(set func(o *operated, token string)) func(*testing.T) (*operated, []string) {
	return func(t *testing.T) (*operated, []string) {
		info, token, dir := &bootstraptoken.ClusterInfo{Server: "https://127.0.0.1:1", CAs: []*x509.Certificate{foreignCA(t)}}, bootstraptoken.Generate(), t.TempDir()
		object, err := (&bootstraptoken.Secret{Token: token, Usages: bootstraptoken.Usages{Signing: true}}).Object()
		if err != nil {
			t.Fatal(err)
		}
		data, err := info.Data()
		if err != nil {
			t.Fatal(err)
		}
		signing, err := bootstraptoken.Sign(data, []*bootstraptoken.Object{object}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		signing.Data[bootstraptoken.SignatureKeyPrefix+foreign] = foreign
		t.Chdir(dir)
		if err := os.WriteFile("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: info.CAs[0].Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		o := operates(t, "", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: bootstraptoken.ClusterInfoNamespace, Name: bootstraptoken.ClusterInfoName}, Data: signing.Data})
		set(o, token.Reveal())
		return o, []string{""}
	}
}

// foreignCA is a CA with foreign bytes in its name, which ends a minute after the time of the fixtures.
func foreignCA(t *testing.T) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: foreign}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: at.Add(-time.Minute), NotAfter: at.Add(time.Minute)}
	text, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(text)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func quoted(s any) string {
	text, _ := json.Marshal(s)
	return string(text)
}
