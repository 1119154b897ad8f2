package node

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
)

// certificate makes a certificate, in DER.
func certificate(t testing.TB, name string) []byte {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)}
	der := testkit.Must(x509.CreateCertificate(rand.Reader, c, c, key.Public(), key))
	return der
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// listed puts certificates into the list of vendors' roots while a test runs.
func listed(t *testing.T, ders ...[]byte) {
	t.Helper()
	var list []vendorRoot
	for i, der := range ders {
		sum := sha256.Sum256(der)
		list = append(list, vendorRoot{Vendor: fmt.Sprint("Vendor ", i+1), Subject: "CN=root", SHA256: hex.EncodeToString(sum[:]), Ends: "2039-12-31"})
	}
	text := testkit.Must(json.Marshal(list))
	before := vendorRootsJSON
	vendorRootsJSON = text
	t.Cleanup(func() { vendorRootsJSON = before })
}

func file(t *testing.T, name string, text ...[]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	testkit.MustDo(os.WriteFile(path, bytes.Join(text, nil), 0o666))
	return path
}

// TestRootsCheck holds files of each form against a list: what of it is known, has ended or is
// unknown, and whether the command fails.
func TestRootsCheck(t *testing.T) {
	one, two, other := certificate(t, "one"), certificate(t, "two"), certificate(t, "other\nroot")
	listed(t, one, two)
	p1, p2, p3 := pemOf("CERTIFICATE", one), pemOf("CERTIFICATE", two), pemOf("CERTIFICATE", other)
	for name, row := range map[string]struct {
		file, want, err string
		ended           bool
	}{
		"DER":               {file: file(t, "f", one), want: "F 1: known: Vendor 1, CN=root, until 2039-12-31\n"},
		"two in DER":        {file: file(t, "f", one, two), want: "F 1: known: Vendor 1, CN=root, until 2039-12-31\nF 2: known: Vendor 2, CN=root, until 2039-12-31\n"},
		"a bundle, text":    {file: file(t, "f", []byte("Vendors\n"), p2, []byte("and\n"), p1), want: "F 1: known: Vendor 2, CN=root, until 2039-12-31\nF 2: known: Vendor 1, CN=root, until 2039-12-31\n"},
		"ended":             {file: file(t, "f", p1), want: "F 1: expired on 2039-12-31: Vendor 1, CN=root\n", ended: true},
		"an unknown one":    {file: file(t, "f", p1, p3), want: "F 1: known: Vendor 1, CN=root, until 2039-12-31\nF 2: unknown: CN=other\\nroot, SHA-256 DIGEST\n", err: "unknown certificates: 1: compare"},
		"no certificate":    {file: file(t, "f", pemOf("CERTIFICATE", []byte("x"))), want: "F 1: unknown: an invalid certificate, SHA-256 DIGEST\n", err: "unknown certificates: 1"},
		"a key":             {file: file(t, "f", p1, pemOf("PRIVATE KEY", []byte("x"))), err: "PRIVATE KEY"},
		"a block cut short": {file: file(t, "f", p1, p2[:len(p2)-5]), err: "with 2 PEM blocks, of which 1 can be read"},
		"text":              {file: file(t, "f", []byte("<html>")), err: "without certificates in PEM or DER"},
		"empty":             {file: file(t, "f"), err: "an empty file"},
		"trailing bytes":    {file: file(t, "f", one, []byte{0}), err: "without certificates in PEM or DER"},
		"too large":         {file: file(t, "f", bytes.Repeat(p1, 1+configfile.MaxSize/len(p1))), err: "more than 1048576 bytes"},
		"no file":           {file: filepath.Join(t.TempDir(), "none"), err: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2039, 12, 31, 23, 0, 0, 0, time.UTC)
			if row.ended {
				now = now.Add(time.Hour)
			}
			sum := sha256.Sum256(other)
			if name == "no certificate" {
				sum = sha256.Sum256([]byte("x"))
			}
			want := strings.NewReplacer("F ", row.file+" ", "DIGEST", hex.EncodeToString(sum[:])).Replace(row.want)
			var out bytes.Buffer
			err := roots([]string{"check", row.file}, &out, now)
			if out.String() != want || (err != nil) != (row.err != "") || err != nil && !strings.Contains(err.Error(), row.err) {
				t.Errorf("got %q, %v\nwant %q, %q", &out, err, want, row.err)
			}
		})
	}
}

// TestRootsCheckStatus: the command needs no configuration, goes on after a file that it cannot
// read, and says by its status whether all is known.
func TestRootsCheckStatus(t *testing.T) {
	one := certificate(t, "one")
	listed(t, one)
	good, none := file(t, "good", one), filepath.Join(t.TempDir(), "none")
	for args, want := range map[string]struct{ status, lines int }{
		"roots check " + good:                              {0, 1},
		"roots check " + good + " " + good:                 {0, 2},
		"roots check " + none + " " + good:                 {1, 1},
		"--config " + none + " roots check " + good:        {0, 1},
		"roots check":                                      {2, 0},
		"roots":                                            {2, 0},
		"roots list " + good:                               {2, 0},
		"roots check " + file(t, "b", certificate(t, "b")): {1, 1},
	} {
		var out, errs bytes.Buffer
		if status := Main(strings.Fields(args), &out, &errs); status != want.status || strings.Count(out.String(), "\n") != want.lines || (errs.Len() == 0) != (status == 0) {
			t.Errorf("%s: status %d, %q, %q", args, status, &out, &errs)
		}
	}
}

// TestVendorRootsList: each certificate stands in the list once, with all that there is to say.
func TestVendorRootsList(t *testing.T) {
	decoder := json.NewDecoder(bytes.NewReader(vendorRootsJSON))
	decoder.DisallowUnknownFields()
	var all []vendorRoot
	testkit.MustDo(decoder.Decode(&all))
	digest := regexp.MustCompile(`^[0-9a-f]{64}$`)
	for _, r := range all {
		if _, err := time.Parse(time.DateOnly, r.Ends); err != nil || r.Vendor == "" || !strings.HasPrefix(r.Subject, "CN=") || !digest.MatchString(r.SHA256) || r.Source == "" {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if known, err := vendorRoots(); err != nil || len(known) != len(all) || len(all) < 50 {
		t.Errorf("%d certificates, %d of them different, %v", len(all), len(known), err)
	}
}

// TestVendorRootsPage runs the commands of the page: openssl prints for PEM and DER what the
// table would have, and both commands agree.
func TestVendorRootsPage(t *testing.T) {
	page := testkit.Must(os.ReadFile(filepath.Join("..", "..", "..", "docs", "vendor-roots.md")))
	commands := regexp.MustCompile("(?ms)^```sh\n(.*?)\n```$").FindAllStringSubmatch(string(page), -1)
	if len(commands) != 2 {
		t.Fatalf("%d commands: %q", len(commands), commands)
	}
	der := certificate(t, "root")
	listed(t, der)
	for form, path := range map[string]string{"PEM": file(t, "root.pem", pemOf("CERTIFICATE", der)), "DER": file(t, "root.cer", der)} {
		out := testkit.Must(exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(commands[0][1], "FILE", path, 1)).Output())
		known, err := vendorRoots()
		if r, ok := known[strings.TrimSuffix(string(out), "  -\n")]; err != nil || !ok {
			t.Errorf("%s: %q is %+v, %v", form, out, r, err)
		}
		args := strings.Fields(strings.Replace(commands[1][1], "FILE...", path, 1))
		if args[0] != "kubelet-authenticator" || Main(args[1:], io.Discard, t.Output()) != 0 {
			t.Errorf("%s: %q fails", form, args)
		}
	}
}

// FuzzRoots: whatever a file has, each certificate of it is judged, or the file is an error.
func FuzzRoots(f *testing.F) {
	testkit.BeginFuzz(f)
	der := certificate(f, "root")
	f.Add(der)
	f.Add(pemOf("CERTIFICATE", der))
	f.Add(append([]byte("text\n"), pemOf("PRIVATE KEY", der)...))
	f.Fuzz(func(t *testing.T, text []byte) {
		found, err := certificatesIn(text)
		if (err == nil) != (len(found) > 0) {
			t.Errorf("%d certificates, %v", len(found), err)
		}
		for _, der := range found {
			if line, _ := lookUp(nil, der, time.Time{}); !strings.HasPrefix(line, "unknown: ") || strings.Contains(line, "\n") {
				t.Errorf("%q", line)
			}
		}
	})
}
