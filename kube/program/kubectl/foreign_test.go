package kubectl

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
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
		"observed": func(t *testing.T) (*operated, []string) {
			table := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: observed.ConfigMap}, Data: map[string]string{
				"node-1": `{"request":"a","requester":` + quoted(foreign) + `,"reason":"b","message":"c","time":"2026-03-02T12:00:00Z"}`}}
			return operates(t, "", table, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + foreign}}), []string{"observed"}
		},
		"trace": func(t *testing.T) (*operated, []string) {
			o := tracing(t)
			log := strings.Replace(auditLog(), `"admin"`, quoted(foreign), 1)
			if err := os.WriteFile(o.auditLogs[0], []byte(log), 0o600); err != nil {
				t.Fatal(err)
			}
			return o, []string{adminsToken}
		},
		"nodes":   record(func(*operated) {}),
		"rebind":  record(func(o *operated) { o.machine = "strange:3" }),
		"adopt":   record(func(o *operated) { o.providerID = "sim://a/1" }),
		"release": record(func(*operated) {}),
		"token": record(func(o *operated) {
			var n v1alpha1.AttestedNode
			_ = o.client.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &n)
			n.Spec.Scope = "ak"
			_ = o.client.Update(t.Context(), &n)
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

func quoted(s any) string {
	text, _ := json.Marshal(s)
	return string(text)
}
