package settings

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// list is a revocation list with a number.
func list(t *testing.T, number int64) string {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	issuer := &x509.Certificate{Subject: pkix.Name{CommonName: "a vendor"}, SubjectKeyId: []byte{1}, KeyUsage: x509.KeyUsageCRLSign}
	der := testkit.Must(x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(number), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}, issuer, key))
	return string(der)
}

// TestChanged changes the files of a configuration one by one.
func TestChanged(t *testing.T) {
	ca := func() string {
		t.Helper()
		made := testkit.Must(tpmsim.NewCA(tpmsim.CAOptions{}))
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Root().Raw}))
	}
	roots, clusterCA, revoked := ca(), ca(), list(t, 1)
	for name, row := range map[string]struct {
		file, text string
		old, with  string // in config.yaml instead
		want       bool
		broken     bool
	}{
		"nothing":                    {},
		"the inventory":              {file: "inventory.yaml", text: "machines: [{nodeName: node-1}]\n"},
		"an unnamed file":            {file: "other.pem", text: ca()},
		"the roots":                  {file: "ek-roots.pem", text: roots + ca(), want: true},
		"the roots are broken":       {file: "ek-roots.pem", text: "-----BEGIN", broken: true},
		"a revocation list":          {file: "list.crl", text: list(t, 2), want: true},
		"a broken revocation list":   {file: "list.crl", text: "", broken: true},
		"the cluster's CA":           {file: "ca.crt", text: clusterCA + ca(), want: true},
		"the cluster's CA is broken": {file: "ca.crt", text: "", broken: true},
		"a field":                    {old: "maxLifetime: 24h", with: "maxLifetime: 12h", want: true},
		"a comment":                  {old: "maxLifetime: 24h", with: "maxLifetime: 24h # a day", want: true},
		"an unknown field":           {old: "maxLifetime: 24h", with: "maxLife: 24h", broken: true},
		"the cluster's name":         {old: "  caFile:", with: "  ids: [cluster-1]\n  caFile:", want: true},
		"a name of every cluster's":  {old: "  caFile:", with: "  ids: [kubernetes]\n  caFile:", broken: true},
		"EKs of no algorithm":        {old: "identityClass: RSA-2048", with: "identityClass: RSA", broken: true},
		"keys of another road":       {old: "road: ek", with: "road: ak", broken: true},
		"no inventory":               {old: "/inventory.yaml", with: "/none.yaml", broken: true},
		"keys for an hour":           {old: "rotateKeysAfter: 0s", with: "rotateKeysAfter: 1h", broken: true},
		"a negative rate":            {old: "requesterRate: 0", with: "requesterRate: -1", broken: true},
		"a Secret of no name":        {old: "keyRingSecret: challenge-keys", with: "keyRingSecret: Challenge_Keys", broken: true},
		"a namespace with a dot":     {old: "namespace: nodeattest-system", with: "namespace: node.attest", broken: true},
		"roots that are missing":     {old: "ek-roots.pem", with: "none.pem", broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(file, text string) {
				t.Helper()
				testkit.MustDo(os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
			config := strings.ReplaceAll(shipped(t), "/etc/nodeattest/", dir+"/")
			config = strings.Replace(config, "# caFile: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt", "caFile: "+dir+"/ca.crt", 1)
			config = strings.Replace(config, "      profile: tcg\n", "      profile: tcg\n      crlFiles: ["+dir+"/list.crl]\n", 1)
			for file, text := range map[string]string{"config.yaml": config, "ek-roots.pem": roots, "ca.crt": clusterCA, "list.crl": revoked, "inventory.yaml": "machines: []\n"} {
				write(file, text)
			}
			s := testkit.Must(Read(filepath.Join(dir, "config.yaml")))
			switch {
			case row.old != "":
				write("config.yaml", strings.Replace(config, row.old, row.with, 1))
			case row.file != "":
				write(row.file, row.text)
			}
			changed, err := s.changed()
			if changed != row.want || (err != nil) != row.broken {
				t.Errorf("changed: %t, %v, want %t and an error: %t", changed, err, row.want, row.broken)
			}
		})
	}
}
