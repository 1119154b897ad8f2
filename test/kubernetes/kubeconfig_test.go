package kubernetes

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	kubeconfigutil "k8s.io/kubernetes/cmd/kubeadm/app/util/kubeconfig"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

// newCA is a CA certificate in PEM.
func newCA(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(cryptorand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestBundlesRandom compares ParseCAs with client-go: it finds the same certificates in all
// that is taken, each once.
func TestBundlesRandom(t *testing.T) {
	a, b := newCA(t, "a"), newCA(t, "b")
	inShards(t, func(t *testing.T, s source) {
		taken := 0
		for range rounds() / 5 {
			var bundle strings.Builder
			for range 1 + s.Intn(3) {
				bundle.WriteString(s.block(pick(s, a, b)))
			}
			ours, err := bootstraptoken.ParseCAs([]byte(bundle.String()))
			if err != nil {
				continue
			}
			taken++
			theirs, err := cert.ParseCertsPEM([]byte(bundle.String()))
			var once []*x509.Certificate
			for _, ca := range theirs {
				if !slices.ContainsFunc(once, ca.Equal) {
					once = append(once, ca)
				}
			}
			if err != nil || !slices.EqualFunc(ours, once, (*x509.Certificate).Equal) {
				t.Fatalf("%q: client-go finds %d, %v, and we %d", bundle.String(), len(theirs), err, len(ours))
			}
		}
		if taken < rounds()/100 {
			t.Errorf("%d bundles taken: too few to compare", taken)
		}
	})
}

// block is a block of PEM, mostly with something wrong around or in it.
func (s source) block(block string) string {
	at := s.Intn(len(block))
	switch s.Intn(10) {
	case 0:
		return strings.ReplaceAll(block, "\n", pick(s, "\r\n", "\r", " \n"))
	case 1:
		return strings.Replace(block, "-----\n", pick(s, "----- \t\n", "-----\nA: b\n\n", "-----\n\n"), 1)
	case 2:
		return strings.TrimSuffix(block, "\n")
	case 3:
		return pick(s, "# ", "x", " ", "\t", "\n\n", "\r", "-", "\ufeff", "text\n", "\x00\n", "----\n", "BEGIN CERTIFICATE\n") + block
	case 4:
		return strings.Replace(block, "-----END", pick(s, "x-----END", " -----END", "=-----END", "\n\n-----END"), 1)
	case 5:
		return block[:at] + pick(s, "\n", " ", "\t", "A", "=", "-", ":", "\r") + block[at:]
	case 6:
		return block[:at] + block[min(at+1+s.Intn(3), len(block)):]
	case 7:
		return block + pick(s, "text\n", "text", "----", "-----", "x-----END CERTIFICATE-----\n")
	}
	return block
}

// TestKubeconfigsRandom compares ParseKubeconfig with clientcmd and kubeadm: they read the same
// cluster in all that is taken.
func TestKubeconfigsRandom(t *testing.T) {
	ca := base64.StdEncoding.EncodeToString([]byte(newCA(t, "a")))
	inShards(t, func(t *testing.T, s source) {
		taken := 0
		for range rounds() / 4 {
			document := s.kubeconfig(ca)
			ours, err := bootstraptoken.ParseKubeconfig([]byte(document))
			if err != nil {
				continue
			}
			taken++
			compareKubeconfig(t, strings.ReplaceAll(document, ca, "CA"), []byte(document), ours)
			if t.Failed() {
				return
			}
		}
		if taken < rounds()/100 {
			t.Errorf("%d documents taken: too few to compare", taken)
		}
	})
}

func compareKubeconfig(t *testing.T, shown string, document []byte, ours *bootstraptoken.ClusterInfo) {
	t.Helper()
	config, err := clientcmd.Load(document)
	if err != nil {
		t.Errorf("%q: clientcmd: %v", shown, err)
		return
	}
	_, cluster, err := kubeconfigutil.GetClusterFromKubeConfig(config)
	if err != nil || cluster == nil {
		t.Errorf("%q: kubeadm finds %v, %v", shown, cluster, err)
		return
	}
	var want bytes.Buffer
	for _, ca := range ours.CAs {
		_ = pem.Encode(&want, &pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}) // to memory
	}
	if cluster.Server != ours.Server || !bytes.Equal(cluster.CertificateAuthorityData, want.Bytes()) || cluster.InsecureSkipTLSVerify ||
		cluster.ProxyURL != "" || cluster.TLSServerName != "" || cluster.CertificateAuthority != "" {
		t.Errorf("%q: clientcmd reads %+v, we %+v", shown, cluster, ours)
	}
}

// mostly returns the usual value, and one of the others once in four times.
func mostly(s source, usual string, others ...string) string {
	if s.oneIn(4) {
		return pick(s, others...)
	}
	return usual
}

// kubeconfig is a document in which little is unusual.
func (s source) kubeconfig(ca string) string {
	name := mostly(s, pick(s, `""`, "c"), "yes", `"yes"`, "0o7", "1e3", "null", "~", "c: d", "'c'", "on", "n", "1_0", "0x1f", "1:20", "2001-01-01",
		"=", "<<", "c #x", ".inf", "NaN", "y", "c\n ", "0b1", "07", "08", "1.2.3", "+1", "True", "10.0.0.1", "0x_1", "-", "a-b@c", "!!str c", "12e03", "1__0", "_1", "0.", ".5")
	server := mostly(s, "https://h:6443", `"https://h:6443"`, "'https://h'", "https://h:6443 #x", "https://H", `"https://\x68"`,
		"https://[::1]:6443", ">-\n      https://h", "|\n      https://h", "https://h/a%2fb", "https://h/a:b", "https://h:6443/", "https://h.", "https://1.2", "https://h/=,+")
	extra := mostly(s, "", "insecure-skip-tls-verify: false", "insecure-skip-tls-verify: no", "insecure-skip-tls-verify: False", `insecure-skip-tls-verify: ""`,
		"insecure-skip-tls-verify: ~", "insecure-skip-tls-verify: {}", "Server: https://other", `SERVER: ""`, "proxy-url: ''", "proxy-url: false", "tls-server-name: null",
		"tls-server-name: []", "extensions: []", "extensions: {}", "disable-compression: false", `disable-compression: ""`, `certificate-authority: ""`,
		"<<: {server: https://other}", `"server ": https://other`, "? server\n    : https://other")
	data := mostly(s, ca, `"`+ca+`"`, "|\n      "+ca, ">\n      "+ca, "!!binary "+ca, ca[:40]+" "+ca[40:], "''", "null", `"`+strings.ReplaceAll(ca, "/", `\/`)+`"`)
	current := mostly(s, pick(s, `""`, "x"), "yes", "~", "'yes'", "n")
	document := "apiVersion: " + mostly(s, "v1", `"v1"`, "v1 ", "V1") + "\nclusters:\n- cluster:\n    certificate-authority-data: " + data +
		"\n    server: " + server + "\n    " + extra + "\n  name: " + name + "\ncontexts: " +
		pick(s, "null", "[]", "\n- context: {cluster: "+name+`, user: ""}`+"\n  name: "+current, "\n- name: x\n  context:\n    cluster: c\n    user: u\n    namespace: "+mostly(s, "a", "n", "off", `"n"`)) +
		"\ncurrent-context: " + current + "\nkind: " + mostly(s, "Config", "'Config'", "config") +
		"\nusers: " + mostly(s, pick(s, "null", "[]", "\n- name: u"), "\n- name: u\n  user: {}", "\n- name: u\n  user: []", "\n- name: u\n  user: ''", "\n- name: u\n  user: {token: x}") +
		"\n" + mostly(s, "", "preferences: {}\n", "preferences: ''\n", "preferences: []\n", "extensions: {}\n", "other: null\n")
	at := s.Intn(len(document))
	switch s.Intn(30) {
	case 0:
		return "---\n" + document
	case 1:
		return document + "...\n"
	case 2:
		return "%YAML 1.1\n---\n" + document
	case 3:
		return strings.ReplaceAll(document, "\n", pick(s, "\r\n", "\u0085", "\r"))
	case 4:
		return document[:at] + string(rune(s.Intn(128))) + document[at:]
	case 5:
		return document[:at] + document[at+1:]
	case 6:
		return strings.Replace(document, "\n", pick(s, "\u2028", "\u0085"), 1)
	}
	return document
}
