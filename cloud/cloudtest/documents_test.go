package cloudtest_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// openssl runs OpenSSL, where it is installed.
func openssl(t *testing.T, arguments ...string) string {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl: apt-get install openssl")
	}
	out, err := exec.Command("openssl", arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("openssl %q: %v\n%s", arguments, err, out)
	}
	return string(out)
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeCertificates(t *testing.T, certs ...*x509.Certificate) string {
	t.Helper()
	var data []byte
	for _, c := range certs {
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return write(t, "certs.pem", data)
}

// outline is the shape of BER: tags, which lengths are indefinite, and object identifiers,
// without the insides of certificates and names.
func outline(t *testing.T, data []byte) string {
	t.Helper()
	var b strings.Builder
	if rest := outlineOne(t, &b, data, 0); len(rest) > 0 {
		t.Fatalf("%d bytes are left", len(rest))
	}
	return b.String()
}

func outlineOne(t *testing.T, b *strings.Builder, data []byte, depth int) (rest []byte) {
	tag, length, head := data[0], int(data[1]), 2
	indefinite := length == 0x80
	if !indefinite && length > 0x80 {
		head += length - 0x80
		length = 0
		for _, c := range data[2:head] {
			length = length<<8 | int(c)
		}
	}
	fmt.Fprintf(b, "%*s%02x", depth, "", tag)
	body := data[head:]
	if indefinite {
		b.WriteString(" indefinite")
	} else {
		body, rest = data[head:head+length], data[head+length:]
	}
	switch {
	case tag == 6:
		fmt.Fprintf(b, " %x", body)
	case tag == 0x30 && (body[0] == 0x31 || bytes.Contains(body[:min(len(body), 8)], []byte{0xa0, 3, 2, 1, 2})):
		b.WriteString(" name or certificate\n")
		return rest
	}
	b.WriteByte('\n')
	for tag&0x20 != 0 && len(body) > 0 {
		if indefinite && body[0] == 0 {
			return body[2:]
		}
		body = outlineOne(t, b, body, depth+1)
	}
	return rest
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	return testkit.Must(os.ReadFile(path))
}

func TestEC2Document(t *testing.T) {
	cloud := cloudtest.NewEC2(t, "us-west-1", "us-west-2")
	document := testkit.Must(cloud.Document(cloudtest.EC2Machine{AccountID: "123456789012", Region: "us-west-1", InstanceID: "i-0123456789abcdef0"}))
	path, certs := write(t, "document", document), cloud.Certificates()
	out := openssl(t, "smime", "-verify", "-inform", "DER", "-in", path, "-certfile", writeCertificates(t, certs["us-west-1"]), "-noverify")
	if !strings.Contains(out, `"instanceId" : "i-0123456789abcdef0"`) {
		t.Error(out)
	}
	corpus := os.Getenv("NODEATTEST_CORPUS")
	if corpus == "" {
		t.Skip("NODEATTEST_CORPUS is not set")
	}
	if got, want := outline(t, document), outline(t, readFile(t, filepath.Join(corpus, "cloud/awsid/teleport-us-west-2-rsa2048.p7"))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAzureDocument(t *testing.T) {
	cloud := cloudtest.NewAzure(t, cloudtest.AzureOptions{})
	document := testkit.Must(cloud.Document(cloudtest.AzureMachine{VMID: "B1310A36-d400-46f6-82cb-6217df846586", SubscriptionID: "8a205152-b25a-417f-a676-80465535a6c9"}, "n0nce"))
	path := write(t, "document", document)
	t.Log(openssl(t, "smime", "-verify", "-inform", "DER", "-in", path, "-certfile", writeCertificates(t, cloud.Leaf()), "-noverify"))
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(cloud.Root())
	intermediates.AddCert(cloud.Intermediate())
	for _, name := range []string{"metadata.azure.com", "westeurope.metadata.azure.com"} {
		if _, err := cloud.Leaf().Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: intermediates}); err != nil {
			t.Error(err)
		}
	}
	corpus := os.Getenv("NODEATTEST_CORPUS")
	if corpus == "" {
		t.Skip("NODEATTEST_CORPUS is not set")
	}
	if got, want := outline(t, document), outline(t, readFile(t, filepath.Join(corpus, "cloud/azure/taskcluster-2026-07-g2.p7"))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
