package settings

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const (
	project      = "example-project"
	subscription = "8a205152-b25a-417f-a676-80465535a6c9"
	vmID         = "b1310a36-d400-46f6-82cb-6217df846586"
	instanceID   = "i-0123456789abcdef0"
)

// world is the clouds, a maker of TPMs, and a folder with the trust anchors of each.
type world struct {
	dir    string
	vendor *tpmsim.CA
	google *cloudtest.GCE
	azure  *cloudtest.Azure
	nitro  *cloudtest.Nitro
	ec2    *cloudtest.EC2
}

func newWorld(t *testing.T) *world {
	t.Helper()
	vendor := testkit.Must(tpmsim.NewCA(tpmsim.CAOptions{Name: "Example Cloud"}))
	w := &world{t.TempDir(), vendor, cloudtest.NewGCE(t), cloudtest.NewAzure(t, cloudtest.AzureOptions{}), cloudtest.NewNitro(t), cloudtest.NewEC2(t, "eu-west-1", "eu-test-1")}
	keys := testkit.Must(jws.MarshalJWKS(w.google.Keys()))
	for name, text := range map[string][]byte{
		"keys.json": keys, "ak.pem": pemOf(vendor.Root()), "list.crl": []byte(list(t, 1)), "azure.pem": pemOf(w.azure.Root()),
		"intermediates.pem": pemOf(w.azure.Intermediate()), "nitro.pem": pemOf(w.nitro.Root()), "ec2.pem": pemOf(w.ec2.Certificates()["eu-west-1"]),
		"leaf.pem": pemOf(w.azure.Leaf()), "ended.pem": endedRoot(t), "roots.pem": append(endedRoot(t), pemOf(w.azure.Root())...),
	} {
		testkit.MustDo(os.WriteFile(filepath.Join(w.dir, name), text, 0o600))
	}
	return w
}

// endedRoot is a root that ended an hour ago.
func endedRoot(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Ended Root"}, NotBefore: time.Now().AddDate(-1, 0, 0), NotAfter: time.Now().Add(-time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	if c.Raw, err = x509.CreateCertificate(rand.Reader, c, c, key.Public(), key); err != nil {
		t.Fatal(err)
	}
	return pemOf(c)
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// every configures every kind of evidence, AKs' certificates among them; @ is the folder.
const every = `apiVersion: config.nodeattest.github.io/v1alpha1
kind: NodeAttestation
cluster: {ids: [c]}
signers: {names: [kubernetes.io/kube-apiserver-client-kubelet, cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm, cluster.x-k8s.io/kube-apiserver-client-kubelet-gce, cluster.x-k8s.io/kube-apiserver-client-kubelet-azure, cluster.x-k8s.io/kube-apiserver-client-kubelet-nitro, cluster.x-k8s.io/kube-apiserver-client-kubelet-ec2]}
tpm: {akIssuers: [{rootsFile: @/ak.pem, profile: google}]}
gce: {projects: [example-project], keysFile: @/keys.json}
azure: {subscriptions: [8A205152-B25A-417F-A676-80465535A6C9], rootsFile: @/azure.pem, intermediatesFile: @/intermediates.pem}
nitro: {rootsFile: @/nitro.pem, goodPCRs: [{8: '` + zeros + `', 12: '` + zeros + `'}]}
ec2: {certificateFiles: {eu-west-1: @/ec2.pem}, roles: ['arn:aws:iam::123456789012:role/node']}
inventory: {file: @/inventory.yaml}
membership: {mode: Inventory, road: ak}
`

const zeros = "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"

// settings reads the configuration with changes, each an old and a new text.
func (w *world) settings(changes ...string) (*Settings, error) {
	text := strings.NewReplacer(changes...).Replace(every)
	return Parse([]byte(strings.ReplaceAll(text, "@", w.dir)))
}

// TestKindsRefused changes one thing after the other in a configuration of every kind. What
// is wrong is said at the start.
func TestKindsRefused(t *testing.T) {
	w := newWorld(t)
	if s, err := w.settings(); err != nil {
		t.Fatal(err)
	} else if kinds, err := s.Kinds(); err != nil || len(kinds) != 5 || !slices.Equal(s.Opened(), []string{"tpm", "gce", "azure", "nitro", "ec2"}) {
		t.Fatal(kinds, err)
	}
	for name, change := range map[string][2]string{
		"an ended root and a good one":        {"rootsFile: @/azure.pem", "rootsFile: @/roots.pem"},
		"the issuing CA as a root":            {"rootsFile: @/azure.pem, intermediatesFile: @/intermediates.pem", "rootsFile: @/intermediates.pem"},
		"a fetcher in place of intermediates": {"intermediatesFile: @/intermediates.pem", "fetchIntermediates: true"},
		"a fetcher over https":                {"intermediatesFile: @/intermediates.pem", "fetchIntermediates: true, fetchOverHTTPS: true"},
		"Google's keys at their place":        {"keysFile: @/keys.json", "keysURL: '" + gce.KeysURL + "'"},
		"a mirror of Google's keys":           {"keysFile: @/keys.json", "keysURL: 'https://mirror.example/certs'"},
		"EKs without a revocation list":       {"akIssuers: [{", "ekIssuers: [{rootsFile: @/ak.pem, profile: tcg}], akIssuers: [{"},
		"EKs with a revocation list":          {"akIssuers: [{", "ekIssuers: [{rootsFile: @/ak.pem, profile: tcg, requireCRL: true, crlFiles: [@/list.crl]}], akIssuers: [{"},
		"nitro alone in the inventory":        {"mode: Inventory", "mode: Inventory, kind: nitro"},
		"OtherNames of two issuers":           {"profile: google", "profile: tcg, othername: {issuer: a}}, {rootsFile: @/nitro.pem, profile: tcg, othername: {issuer: b}"},
		"OtherNames of two types":             {"profile: google", "profile: tcg, othername: {types: [1.3.6.1.5.5.7.8.3]}}, {rootsFile: @/nitro.pem, profile: tcg, othername: {types: [1.3.6.1.5.5.7.8.4]}"},
		"the domain of another cloud":         {"intermediatesFile:", "domains: [metadata.azure.us], intermediatesFile:"},
	} {
		s, err := w.settings(change[:]...)
		if err == nil {
			_, err = s.Kinds()
		}
		if err != nil {
			t.Error(name, err)
		}
	}
	for _, profile := range []string{"oem-hwserial", "oem-chassis"} {
		s, err := w.settings("profile: google", "profile: "+profile+", maker: acme")
		if err == nil {
			_, err = s.Kinds()
		}
		if err != nil {
			t.Error(profile, err)
		}
	}
	for name, row := range map[string]struct{ old, with, want string }{
		"no projects":                       {"projects: [example-project]", "projects: []", "gce: configuration: got no projects"},
		"an empty project":                  {"projects: [example-project]", "projects: ['']", "Projects"},
		"no subscriptions":                  {"subscriptions: [8A205152-B25A-417F-A676-80465535A6C9], ", "", "azure: configuration: got no subscriptions"},
		"a subscription of none":            {"8A205152-B25A-417F-A676-80465535A6C9", "mine", "Subscriptions"},
		"two sources of keys":               {"keysFile:", "keysURL: 'https://example.com/keys', keysFile:", "keysURL and keysFile"},
		"keys by http":                      {"keysFile: @/keys.json", "keysURL: 'http://example.com/keys'", "https"},
		"a service account's":               {"keysFile: @/keys.json", "keysURL: 'https://www.googleapis.com/service_accounts/v1/jwk/a@p.iam.gserviceaccount.com'", "gce: configuration: got keysURL"},
		"a service account's, with a dot":   {"keysFile: @/keys.json", "keysURL: 'https://www.googleapis.com./service_accounts/v1/jwk/a@p.iam.gserviceaccount.com'", "gce: configuration: got keysURL"},
		"an ended root of Azure":            {"rootsFile: @/azure.pem", "rootsFile: @/ended.pem", "azure: configuration: got rootsFile"},
		"an ended root of AWS":              {"rootsFile: @/nitro.pem", "rootsFile: @/ended.pem", "nitro: configuration: got rootsFile"},
		"no intermediates":                  {", intermediatesFile: @/intermediates.pem", "", "intermediatesFile and fetchIntermediates"},
		"https without fetching":            {"intermediatesFile:", "fetchOverHTTPS: true, intermediatesFile:", "fetchIntermediates"},
		"customers' domains":                {"intermediatesFile:", "domains: [azure.com], intermediatesFile:", "Domains"},
		"a leaf for a root":                 {"rootsFile: @/azure.pem", "rootsFile: @/leaf.pem", "Roots"},
		"a leaf for AWS' root":              {"rootsFile: @/nitro.pem", "rootsFile: @/leaf.pem", "Roots"},
		"all projects":                      {"projects: [example-project]", "projects: ['*']", "Projects"},
		"a project and a blank":             {"projects: [example-project]", "projects: [example-project, ' b']", "Projects"},
		"no file of keys":                   {"keys.json", "none.json", "none.json"},
		"keys of no form":                   {"keys.json", "ak.pem", "keysFile"},
		"no roots of Azure":                 {"rootsFile: @/azure.pem, ", "", "azure: configuration: got no rootsFile"},
		"an odd domain":                     {"intermediatesFile:", "domains: [azure], intermediatesFile:", "Domains"},
		"no roots of AWS":                   {"rootsFile: @/nitro.pem, ", "", "nitro: configuration: got no rootsFile"},
		"no hexadecimal digits":             {"8: '" + zeros, "8: 'x" + zeros[1:], "goodPCRs[0]"},
		"a short PCR":                       {"8: '" + zeros, "8: '" + zeros[2:], "48 bytes"},
		"a NitroTPM's PCR of nothing":       {"8: '" + zeros, "4: '" + zeros, "after a reset"},
		"a PCR that resets":                 {"8: '", "16: '", "PCR 16"},
		"a TPM's PCR that resets":           {"akIssuers:", "goodPCRs: [{16: '" + zeros[:64] + "'}], akIssuers:", "SHA256:16"},
		"a TPM's PCR of nothing":            {"akIssuers:", "goodPCRs: [{7: '" + zeros[:64] + "'}], akIssuers:", "nothing was measured"},
		"a PCR that no TPM has":             {"akIssuers:", "goodPCRs: [{32: '" + zeros[:64] + "'}], akIssuers:", "goodPCRs"},
		"no PCR of a TPM":                   {"akIssuers:", "goodPCRs: [{}], akIssuers:", "no PCR"},
		"a TPM's PCR of another bank":       {"akIssuers:", "goodPCRs: [{7: '" + zeros + "'}], akIssuers:", "goodPCRs"},
		"a TPM's PCR in words":              {"akIssuers:", "goodPCRs: [{7: 'good'}], akIssuers:", "goodPCRs[0]"},
		"PCRs of no TPM":                    {"tpm: {akIssuers: [{rootsFile: @/ak.pem, profile: google}]}", "tpm: {goodPCRs: [{7: '" + zeros[:64] + "'}]}", "tpm.goodPCRs"},
		"an unknown field":                  {"projects:", "project: x, projects:", "project"},
		"a key in a TPM":                    {"akIssuers:", "requireResident: true, akIssuers:", "no document shows where a key is"},
		"an unknown kind":                   {"mode: Inventory", "mode: Inventory, kind: aws", "a kind that is configured"},
		"first use of nitro":                {"mode: Inventory", "mode: FirstUse, kind: nitro", "every customer of AWS"},
		"first use of ec2":                  {"mode: Inventory", "mode: FirstUse, kind: ec2", "chooses the machine"},
		"no roles":                          {", roles: ['arn:aws:iam::123456789012:role/node']", "", "ec2: configuration: got no Roles"},
		"a role by its name":                {"arn:aws:iam::123456789012:role/node", "node", "ec2: configuration: got Roles \"node\""},
		"no certificates of EC2":            {"certificateFiles: {eu-west-1: @/ec2.pem}, ", "", "ec2: configuration: got no Certificates"},
		"no file of EC2's":                  {"@/ec2.pem", "@/none.pem", "none.pem"},
		"two certificates of a region":      {"@/ec2.pem", "@/roots.pem", "2 certificates for region eu-west-1"},
		"a region without an endpoint":      {"eu-west-1: @/ec2.pem", "eu-test-1: @/ec2.pem", "Certificates \"eu-test-1\""},
		"a region's certificate that ended": {"@/ec2.pem", "@/ended.pem", "ec2: configuration: got rootsFile"},
		"a maker of no name":                {"profile: google", "profile: oem-chassis", "maker"},
		"a maker and Google":                {"profile: google", "profile: google, maker: acme", "maker"},
		"a maker of a bad name":             {"profile: google", "profile: oem-hwserial, maker: A", "Issuer"},
		"a maker's other keys":              {"profile: google", "profile: oem, maker: acme", "oem-chassis"},
		"a maker of EKs":                    {"akIssuers: [{", "ekIssuers: [{rootsFile: @/ak.pem, profile: tcg, maker: acme}], akIssuers: [{", "maker"},
		"a maker of EKs' names":             {"akIssuers: [{", "ekIssuers: [{rootsFile: @/ak.pem, profile: tcg, othername: {issuer: a}}], akIssuers: [{", "othername"},
		"an OtherName of Google":            {"profile: google", "profile: google, othername: {issuer: a}", "othername of profile google"},
		"an OtherName without fields":       {"profile: google", "profile: tcg, othername: {}", "neither issuer nor types"},
		"an issuer of a bad name":           {"profile: google", "profile: tcg, othername: {issuer: A}", "of issuer \"A\""},
		"a type that is no OID":             {"profile: google", "profile: tcg, othername: {issuer: a, types: [1.3.6.1.5.5.7.8.3, upn]}", "akIssuers[0]: othername.types[1]"},
		"one name of two roots":             {"profile: google", "profile: tcg, othername: {issuer: a}}, {rootsFile: @/nitro.pem, profile: tcg, othername: {issuer: a}", "an Issuer of its own"},
		"a mirror of no URL":                {"keysFile: @/keys.json", "keysURL: 'https://a b/keys'", "gce: "},
		"an unknown AK profile":             {"profile: google", "profile: googol", "tcg, google, azure"},
		"an unknown EK profile":             {"akIssuers: [{", "ekIssuers: [{rootsFile: @/ak.pem, profile: google2}], akIssuers: [{", "tcg, google, intel or tpm12"},
		"projects of profile tcg":           {"profile: google", "profile: tcg, projects: [example-project]", "projects of profile tcg"},
		"EKs' projects of profile tcg":      {"akIssuers: [{", "ekIssuers: [{rootsFile: @/ak.pem, profile: tcg, projects: [example-project]}], akIssuers: [{", "projects of profile tcg"},
		"a project's number":                {"profile: google", "profile: google, projects: ['1234']", "and not its number"},
		"every customer on first use":       {"mode: Inventory", "mode: FirstUse", "every customer of a platform"},
		"a CRL of AKs":                      {"profile: google", "profile: google, crlFiles: [@/ak.pem]", "crlFiles"},
		"CRLs of AKs, required":             {"profile: google", "profile: google, requireCRL: true", "crlFiles"},
		"no roots of EKs":                   {"akIssuers: [{", "ekIssuers: [{rootsFile: @/none.pem, profile: tcg}], akIssuers: [{", "none.pem"},
		"roots of EKs in JSON":              {"akIssuers: [{", "ekIssuers: [{rootsFile: @/keys.json, profile: tcg}], akIssuers: [{", "keys.json"},
		"no CRL of EKs":                     {"akIssuers: [{", "ekIssuers: [{rootsFile: @/ak.pem, profile: tcg, crlFiles: [@/none.crl]}], akIssuers: [{", "none.crl"},
		"a CRL that cannot be read":         {"akIssuers: [{", "ekIssuers: [{rootsFile: @/ak.pem, profile: tcg, crlFiles: [@/keys.json]}], akIssuers: [{", "ekIssuers[0]"},
		"a CRL, and no roots":               {"akIssuers: [{", "ekIssuers: [{rootsFile: @/none.pem, profile: tcg, crlFiles: [@/list.crl]}], akIssuers: [{", "none.pem"},
		"no roots, but others":              {"rootsFile: @/ak.pem", "rootsFile: @/none.pem, intermediatesFile: @/ak.pem", "none.pem"},
		"a signer of no kind":               {"client-kubelet-gce", "client-kubelet-gcp", "signers.names"},
		"an insecure signer":                {"client-kubelet-gce", "client-kubelet-insecure", "signers.names"},
		"no kind of a signer":               {"gce: {projects: [example-project], keysFile: @/keys.json}\n", "", "signers of kinds that are configured: tpm, azure, nitro, ec2"},
		"no TPMs of a signer":               {"tpm: {akIssuers: [{rootsFile: @/ak.pem, profile: google}]}\n", "", "signers of kinds that are configured: gce, azure, nitro, ec2"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Count(every, row.old) == 0 {
				t.Fatalf("%q is not there", row.old)
			}
			s, err := w.settings(row.old, row.with)
			if err == nil {
				_, err = s.Kinds()
			}
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want an error with %q", err, row.want)
			}
		})
	}
	for with, want := range map[string]string{ // on first use
		"akIssuers: [{rootsFile: @/ak.pem, profile: azure}]":                               "every customer of a platform",
		"akIssuers: [{rootsFile: @/ak.pem, profile: microsoft-aik}]":                       "every customer of a platform",
		"ekIssuers: [{rootsFile: @/ak.pem, profile: google}]":                              "every customer of a platform",
		"ekIssuers: [{rootsFile: @/ak.pem, profile: google, projects: [example-project]}]": "",
		"ekIssuers: [{rootsFile: @/ak.pem, profile: tcg}]":                                 "",
	} {
		road := "road: ak"
		if strings.HasPrefix(with, "ek") {
			road = "road: ek, identityClass: RSA-2048"
		}
		_, err := w.settings("akIssuers: [{rootsFile: @/ak.pem, profile: google}]", with, "mode: Inventory, road: ak", "mode: FirstUse, "+road)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", with, err, want)
		}
	}
	withoutTPM := []string{"tpm: {akIssuers: [{rootsFile: @/ak.pem, profile: google}]}\n", "", "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm, ", ""}
	if _, err := w.settings(append(withoutTPM, "mode: Inventory", "mode: FirstUse, kind: gce")...); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("a road without TPMs: %v", err)
	}
	if s, err := w.settings(append(withoutTPM, "mode: Inventory, road: ak", "mode: FirstUse, kind: gce")...); err != nil || s.Membership.Kind != "gce" {
		t.Errorf("documents alone: %v", err)
	}
}

// TestRequireResident: keys that are proved to be in the TPM are asked of TPMs only.
func TestRequireResident(t *testing.T) {
	w := newWorld(t)
	var changes []string
	for _, section := range []string{"gce", "azure", "nitro", "ec2"} {
		at := strings.Index(every, "\n"+section+": ")
		line, _, _ := strings.Cut(every[at+1:], "\n")
		changes = append(changes, line+"\n", "", ", cluster.x-k8s.io/kube-apiserver-client-kubelet-"+section, "")
	}
	resident := []string{"akIssuers:", "requireResident: true, akIssuers:"}
	if s, err := w.settings(append(changes, resident...)...); err != nil || !s.TPM.RequireResident {
		t.Errorf("TPMs only: %v", err)
	}
	if _, err := w.settings(append(changes[4:], resident...)...); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("TPMs and one kind of documents: %v", err)
	}
}

// other is a kind of evidence with a description.
type other struct {
	attest.Kind
	is attest.Description
}

func (o *other) Describe() attest.Description { return o.is }

// TestOtherKinds: a kind that is not built in has to match its description.
func TestOtherKinds(t *testing.T) {
	grammar := []attest.Grammar{{Kind: "rack"}, {Kind: "shelf"}}
	good := attest.Description{Provider: "rack", Versions: []int{1}, Roads: []attest.OpenRoad{{Road: attest.RoadDocument, Identities: grammar}}}
	for name, change := range map[string]func(k *Documents, d *attest.Description) attest.Kind{
		"good":             func(_ *Documents, d *attest.Description) attest.Kind { return &other{is: *d} },
		"a name of none":   func(k *Documents, _ *attest.Description) attest.Kind { k.Name = "Rack"; return nil },
		"the name of gce":  func(k *Documents, _ *attest.Description) attest.Kind { k.Name = "gce"; return nil },
		"the TPMs' name":   func(k *Documents, _ *attest.Description) attest.Kind { k.Name = "tpm"; return nil },
		"a section's name": func(k *Documents, _ *attest.Description) attest.Kind { k.Name = "signers"; return nil },
		"no identities":    func(k *Documents, _ *attest.Description) attest.Kind { k.Identities = nil; return nil },
		"no function":      func(k *Documents, _ *attest.Description) attest.Kind { k.Open = nil; return nil },
		"nothing":          func(*Documents, *attest.Description) attest.Kind { return nil },
		"another provider": func(_ *Documents, d *attest.Description) attest.Kind { d.Provider = "rock"; return &other{is: *d} },
		"another version":  func(_ *Documents, d *attest.Description) attest.Kind { d.Versions = []int{1, 2}; return &other{is: *d} },
		"the road of TPMs": func(_ *Documents, d *attest.Description) attest.Kind {
			d.Roads[0].Road = attest.RoadEK
			return &other{is: *d}
		},
		"its first, unsaid": func(k *Documents, d *attest.Description) attest.Kind {
			k.Identities = grammar[1:]
			return &other{is: *d}
		},
		"its last, unsaid": func(k *Documents, d *attest.Description) attest.Kind {
			k.Identities = grammar[:1]
			return &other{is: *d}
		},
	} {
		d := good
		d.Roads = slices.Clone(good.Roads)
		k := Documents{Name: "rack", Identities: grammar}
		k.Open = func(func(any) error) (attest.Kind, error) { return nil, nil }
		if kind := change(&k, &d); kind != nil {
			k.Open = func(func(any) error) (attest.Kind, error) { return kind, nil }
		}
		s, err := Parse([]byte(strings.NewReplacer("@", "/none", "\ninventory:", "\nrack: {}\ninventory:").Replace(every)), k)
		if err == nil {
			s.TPM, s.sections = TPM{}, map[string]configfile.Section{"rack": s.sections["rack"]}
			_, err = s.Kinds()
		}
		if (err == nil) != (name == "good") || err != nil && !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "the name of gce" {
			_, readers := Readers(k)
			if _, err := ParseIdentity("gce:p/1", "gce", k); !errors.Is(err, refusal.CheckConfig) || !errors.Is(readers, refusal.CheckConfig) {
				t.Errorf("two kinds of one name: %v, %v", err, readers)
			}
		}
	}
}

// TestProvidersRefused: an error in any part of a verifier is reported.
func TestProvidersRefused(t *testing.T) {
	w := newWorld(t)
	ring := testkit.Must(attest.NewStaticKeyRing(attest.NewRingKey(time.Now().Add(-time.Hour))))
	opened := errors.New("not opened")
	open := func(membership.Scope) (membership.Registry, membership.Lookups, error) { return nil, nil, opened }
	for name, row := range map[string]struct {
		ring    *attest.KeyRing
		changes []string
	}{
		"good":              {ring, nil},
		"no ring":           {nil, nil},
		"no roots":          {ring, []string{"rootsFile: @/nitro.pem", "rootsFile: @/none.pem"}},
		"no CA":             {ring, []string{"ids: [c]", "caFile: @/none.pem"}},
		"a CA file of JSON": {ring, []string{"ids: [c]", "caFile: @/keys.json"}},
	} {
		s, err := w.settings(row.changes...)
		if err != nil {
			t.Fatal(name, err)
		}
		authorizer := attest.AuthorizerFunc(func(context.Context, *attest.Result) (*attest.Authorization, error) {
			return nil, errors.New("no member")
		})
		if _, err := s.Verifier(row.ring, new(Machines).Machine, authorizer); (err == nil) != (name == "good") || errors.Is(err, os.ErrNotExist) != (name == "no roots" || name == "no CA") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := s.NewAuthorizer(open, nil); err == nil || errors.Is(err, opened) == strings.Contains(name, "CA") {
			t.Errorf("%s: members: %v", name, err)
		}
		if _, err := s.OpenInventory(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: an inventory that is not there: %v", name, err)
		}
	}
	s := testkit.Must(w.settings())
	if got := s.OwnSigners(); len(got) != 5 || slices.Contains(got, csr.SignerKubeAPIServerClientKubelet) {
		t.Errorf("own signers: %q", got)
	}
	if _, err := s.NewAuthorizer(func(membership.Scope) (membership.Registry, membership.Lookups, error) { return nil, nil, nil }, nil); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("members without a registry: %v", err)
	}
}

// TestInventoryEvidence has entries with identities that their kind of evidence never shows.
func TestInventoryEvidence(t *testing.T) {
	byGCE := testkit.Must(newWorld(t).settings("mode: Inventory", "mode: Inventory, kind: gce"))
	for text, want := range map[string]string{
		"{nodeName: a}":                                                 "gce",
		"{nodeName: a, kind: tpm}":                                      "tpm",
		"{nodeName: a, kind: none}":                                     "",
		"{nodeName: a, identity: 'gce:example-project/1'}":              "gce",
		"{nodeName: a, identity: 'gce:example-project/1', kind: tpm}":   "tpm",
		"{nodeName: a, identity: 'gce:example-project/1', kind: azure}": "",
		"{nodeName: a, identity: 'gce:example-project/x'}":              "",
		"{nodeName: a, kind: azure, identity: 'azure:" + strings.ToUpper(subscription+"/"+vmID) + "'}": "azure",
		"{nodeName: a, kind: tpm, identity: 'azure:" + subscription + "/" + vmID + "'}":                "",
		"{nodeName: a, kind: nitro, identity: 'aws:aws/eu-west-1/" + instanceID + "'}":                 "nitro",
		"{nodeName: a, kind: tpm, identity: 'aws:aws/eu-west-1/" + instanceID + "'}":                   "",
		"{nodeName: a, identity: 'aws:aws/eu-west-1/" + instanceID + "'}":                              "",
		"{nodeName: a, identity: 'ek:sha256:" + strings.Repeat("00", 32) + "'}":                        "",
		"{nodeName: a, kind: gce}, {nodeName: b, kind: tpm, identity: 'gce:p/1'}":                      "gce",
		// Its provider ID is that of the machine, or of no cloud.
		"{nodeName: a, providerID: 'gce://any/z/n'}":                                                                                                                    "gce",
		"{nodeName: a, providerID: 'aws:///z/" + instanceID + "'}":                                                                                                      "",
		"{nodeName: a, providerID: 'rack://1'}":                                                                                                                         "gce",
		"{nodeName: a, providerID: 'aws:///z/" + instanceID + "', kind: tpm}":                                                                                           "tpm",
		"{nodeName: a, identity: 'gce:example-project/1', providerID: 'gce://example-project/z/n'}":                                                                     "gce",
		"{nodeName: a, identity: 'gce:example-project/1', providerID: 'gce://another-project/z/n'}":                                                                     "",
		"{nodeName: a, kind: tpm, identity: 'gce:example-project/1', providerID: 'gce://another-project/z/n'}":                                                          "",
		"{nodeName: a, kind: tpm, identity: 'gce:example-project/1', providerID: 'gce://example-project/z/n'}":                                                          "tpm",
		"{nodeName: a, providerID: none}":                                                                                                                               "gce",
		"{nodeName: a, kind: nitro, identity: 'aws:aws/eu-west-1/" + instanceID + "', providerID: 'aws:////" + instanceID + "'}":                                        "nitro",
		"{nodeName: a, kind: azure, identity: 'azure:" + subscription + "/" + vmID + "', providerID: 'azure:///subscriptions/" + strings.ToUpper(subscription) + "/x'}": "azure",
		"{nodeName: a, kind: azure, identity: 'azure:" + subscription + "/" + vmID + "', providerID: 'azure:///subscriptions/" + vmID + "/x'}":                          "",
		"{nodeName: a, kind: nitro, identity: 'aws:aws/eu-west-1/" + instanceID + "', providerID: 'aws:///eu-west-1a/" + instanceID + "'}":                              "nitro",
		"{nodeName: a, kind: nitro, identity: 'aws:aws/eu-west-1/" + instanceID + "', providerID: 'aws:///eu-west-1a/i-1123456789abcdef0'}":                             "",
	} {
		t.Run(text, func(t *testing.T) {
			machines, err := byGCE.ParseInventory([]byte("machines: [" + text + "]"))
			if (err == nil) != (want != "") || err == nil && machines["a"].Provider != want {
				t.Errorf("got %+v, %v, want %s", machines, err, want)
			}
			if id := machines["a"].Identity; id != strings.ToLower(id) {
				t.Errorf("identity %s is not the canonical one", id)
			}
		})
	}
}

// TestIdentities has an inventory's identities in the one spelling that a verification finds.
// One that can be none is refused, and the error says which machine's.
func TestIdentities(t *testing.T) {
	s := testkit.Must(newWorld(t).settings())
	uuids := subscription + "/" + vmID
	for text, row := range map[string]struct{ kind, want string }{ // "": it is refused
		"azure:" + strings.ToUpper(uuids):           {"azure", "azure:" + uuids},
		"azure:" + uuids[1:]:                        {"azure", ""},
		"AZURE:" + uuids:                            {"azure", ""},
		"gce:example-project/1":                     {"gce", "gce:example-project/1"},
		"gce:example-project/01":                    {"gce", ""},
		"gce:example-project":                       {"gce", ""},
		"gce:example-project/2":                     {"tpm", "gce:example-project/2"},
		"gce:example-project/02":                    {"tpm", ""},
		"gec:example-project/2":                     {"tpm", ""},
		"hwserial:acme/SN-1%2F2":                    {"tpm", "hwserial:acme/SN-1%2F2"},
		"hwserial:acme/SN-1%2f2":                    {"tpm", ""},
		"hwserial:acme":                             {"tpm", ""},
		"hwserial:acme/SN-1":                        {"gce", ""},
		"chassis:acme/PN/SN":                        {"tpm", "chassis:acme/PN/SN"},
		"chassis:acme/PN":                           {"tpm", ""},
		"ek:sha256:" + strings.Repeat("0a", 32):     {"tpm", "ek:sha256:" + strings.Repeat("0a", 32)},
		"ek:sha256:" + strings.Repeat("0A", 32):     {"tpm", ""},
		"ak:sha256:" + strings.Repeat("0a", 32):     {"tpm", "ak:sha256:" + strings.Repeat("0a", 32)},
		"ak:sha256:" + strings.Repeat("0a", 31):     {"tpm", ""},
		"othername:2.999.1:DAltYWNoaW5lLTE":         {"tpm", "othername:2.999.1:DAltYWNoaW5lLTE"},
		"othername:2.999.1":                         {"tpm", ""},
		"aws:aws/eu-west-1/" + instanceID:           {"nitro", "aws:aws/eu-west-1/" + instanceID},
		"aws:aws-cn/eu-west-1/" + instanceID:        {"nitro", ""},
		"aws:aws/eu-west-1/" + instanceID + "/more": {"nitro", ""},
		"aws:aws/eu-west-2/" + instanceID:           {"ec2", "aws:aws/eu-west-2/" + instanceID},
		"aws:aws-cn/eu-west-2/" + instanceID:        {"ec2", ""},
	} {
		t.Run(row.kind+" "+text, func(t *testing.T) {
			machines, err := s.ParseInventory([]byte("machines: [{nodeName: a}, {nodeName: b, kind: " + row.kind + ", identity: '" + text + "'}]"))
			if got := machines["b"].Identity; got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if refused := row.want == ""; refused != (err != nil) || refused && (!strings.Contains(err.Error(), "machines[1]: ") || !strings.Contains(err.Error(), path.Base(text))) {
				t.Errorf("got %v, want an error with machines[1] and %s: %t", err, path.Base(text), refused)
			}
		})
	}
}

// provers are the machine vm-1 by its TPM's AK certificate and by a token, and machines of
// the other clouds, by their providers' names.
func (w *world) provers(t *testing.T) map[string]attest.Prover {
	t.Helper()
	m := oid.GCEInstance{Zone: "europe-west1-b", ProjectNumber: 123456789012, ProjectID: project, InstanceID: 1, InstanceName: "vm-1"}
	device := tpmsim.New(t, tpmsim.Options{CA: w.vendor, Instance: &m})
	google, azureServer := w.google.Serve(m), w.azure.Serve(cloudtest.AzureMachine{VMID: vmID, SubscriptionID: subscription})
	t.Cleanup(google.Close)
	t.Cleanup(azureServer.Close)
	byTPM, err1 := tpm.NewProver(device, tpm.GCERSA(), tpm.ProverOptions{Intermediates: [][]byte{device.CA().AKIntermediate().Raw}})
	byGCE, err2 := gce.NewProver(gce.SourceOptions{URL: google.URL})
	byAzure, err3 := azure.NewProver(azure.SourceOptions{URL: azureServer.URL})
	byNitro, err4 := nitro.NewProver(nitro.SourceConfig{Ask: w.nitro.Asker(cloudtest.NitroMachine{InstanceID: instanceID, Region: "eu-west-1"})})
	amazon := w.ec2.Serve(cloudtest.EC2Machine{AccountID: "123456789012", Region: "eu-west-1", InstanceID: instanceID, Role: "node"})
	t.Cleanup(amazon.Close)
	byEC2, err5 := ec2.NewProver(ec2.SourceOptions{URL: amazon.URL})
	testkit.MustDo(errors.Join(err1, err2, err3, err4, err5))
	t.Cleanup(func() { _ = byTPM.Close() })
	return map[string]attest.Prover{"tpm": byTPM, "gce": byGCE, "azure": byAzure, "nitro": byNitro, "ec2": byEC2}
}

// plane decides as the controller does, over objects in memory.
type plane struct {
	*attest.Verifier
	records registry.Several
	boot    *Boot // of the last answer
}

func (w *world) plane(t *testing.T, inventory string, changes ...string) *plane {
	t.Helper()
	s := testkit.Must(w.settings(changes...))
	return w.planeOf(t, s, inventory)
}

func (w *world) planeOf(t *testing.T, s *Settings, inventory string) *plane {
	t.Helper()
	testkit.MustDo(os.WriteFile(s.Inventory.File, []byte(inventory), 0o600))
	machines := testkit.Must(s.OpenInventory())
	store, p := objectstore.New(), new(plane)
	members, err := s.NewAuthorizer(func(scope membership.Scope) (membership.Registry, membership.Lookups, error) {
		r, err := registry.New(scope, store, store, registry.Options{})
		p.records = append(p.records, r)
		return r, nil, err
	}, func(context.Context, string) (bool, error) { return false, nil })
	if err != nil {
		t.Fatal(err)
	}
	ring, err := attest.NewStaticKeyRing(attest.NewRingKey(time.Now().Add(-time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if p.Verifier, err = s.Verifier(ring, machines.Machine, members); err != nil {
		t.Fatal(err)
	}
	return p
}

// join attests as a node, under a signer, with a bootstrap token and a key of its own.
func (p *plane) join(t *testing.T, prover attest.Prover, nodeName, signer string) error {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.joinWith(t, prover, key, nodeName, signer)
	return err
}

func (p *plane) joinWith(t *testing.T, prover attest.Prover, key crypto.Signer, nodeName, signer string) (*csr.Request, error) {
	t.Helper()
	attester := testkit.Must(attest.NewAttester(prover))
	request := testkit.Must(csr.Create(csr.PurposeClient, key, nodeName, csr.CreateOptions{}))
	subject := attest.Subject{Request: request, SignerName: signer, ClusterID: "c", ExpirationSeconds: 3600}
	hello := testkit.Must(attester.Hello(t.Context(), subject))
	challenge, err := p.Challenge(t.Context(), filed(hello))
	if err != nil {
		return nil, err
	}
	answer, err := attester.Answer(t.Context(), challenge, key, subject)
	if err != nil {
		t.Fatal(err)
	}
	ctx, boot := CollectBoot(t.Context())
	p.boot = boot
	_, err = p.Verify(ctx, filed(answer))
	return filed(answer), err
}

func filed(spec *csr.Spec) *csr.Request {
	r := &csr.Request{Metadata: csr.Metadata{Name: "r", UID: fmt.Sprint(time.Now().UnixNano()), CreationTimestamp: time.Now().Truncate(time.Second)}, Spec: *spec}
	r.User.Username, r.User.Groups = csr.BootstrapUserPrefix+"abcdef", []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}
	return r
}

// TestEveryKindJoins has a machine of each kind join, by its identity in the inventory, and
// reads its messages as kubectl nodeattest does.
func TestEveryKindJoins(t *testing.T) {
	w := newWorld(t)
	provers := w.provers(t)
	p := w.plane(t, `machines:
- {nodeName: by-tpm, identity: 'gce:example-project/1'}
- {nodeName: by-azure, kind: azure, identity: 'azure:`+subscription+"/"+strings.ToUpper(vmID)+`'}
- {nodeName: by-nitro, kind: nitro, identity: 'aws:aws/eu-west-1/`+instanceID+`'}
`)
	readers := testkit.Must(Readers())
	for n, provider := range []string{"tpm", "azure", "nitro"} {
		t.Run(provider, func(t *testing.T) {
			key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
			answer := testkit.Must(p.joinWith(t, provers[provider], key, "by-"+provider, csr.SignerKubeAPIServerClientKubelet))
			record, err := p.records.Lookup(t.Context(), "by-"+provider)
			if err != nil || record == nil || record.State != membership.StateBound {
				t.Fatalf("the record: %+v, %v", record, err)
			}
			reader := readers[slices.IndexFunc(readers, func(k attest.Kind) bool { return k.Describe().Provider == provider })]
			reading, err := attest.ReadMessage(answer.Parsed(), reader)
			if err != nil || reading.Stage != attest.StageAnswer || n > 0 && reading.Machine != record.Machine {
				t.Errorf("read as %+v, %v", reading, err)
			}
			if _, err := p.records.LookupMachine(t.Context(), record.Machine); err != nil {
				t.Error(err)
			}
			if err := p.join(t, provers[provider], "unknown", csr.SignerKubeAPIServerClientKubelet); !errors.Is(err, csr.CheckMachineUnknown) {
				t.Errorf("as another node: %v", err)
			}
		})
	}
	if _, err := (registry.Several{}).Lookup(t.Context(), "by-tpm"); err == nil {
		t.Error("no registries know a node")
	}
}

// TestRecorded: as at another time, STS is not asked, so EC2 evidence is neither admitted nor refused.
// A request that another rule refuses is refused.
func TestRecorded(t *testing.T) {
	w := newWorld(t)
	s := testkit.Must(w.settings())
	p := w.planeOf(t, s.At(time.Now().Add(time.Minute)), "machines: [{nodeName: by-ec2, kind: ec2, identity: 'aws:aws/eu-west-1/"+instanceID+"'}]\n")
	prover := w.provers(t)["ec2"]
	if err := p.join(t, prover, "by-ec2", csr.SignerKubeAPIServerClientKubelet); !errors.Is(err, errOffline) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("got %v, want %v", err, errOffline)
	}
	if err := p.join(t, prover, "unknown", csr.SignerKubeAPIServerClientKubelet); !errors.Is(err, csr.CheckMachineUnknown) {
		t.Errorf("as another node: %v", err)
	}
}

// TestStepDown has one machine of Google's come by its TPM and by a token. Known by one of
// the two, by the inventory or by first use, it is refused by the other under every signer's
// name: that of the one kind, that of the other, and Kubernetes' own.
func TestStepDown(t *testing.T) {
	w := newWorld(t)
	provers := w.provers(t)
	for name, row := range map[string]struct {
		inventory, known, other string
		changes                 []string
		node                    string // that the other kind wants to be
	}{
		"listed by its TPM":           {"{nodeName: node-1, identity: 'gce:example-project/1'}", "tpm", "gce", nil, "node-1"},
		"listed by a token":           {"{nodeName: node-1, identity: 'gce:example-project/1', kind: gce}", "gce", "tpm", nil, "node-1"},
		"first by its TPM":            {"{nodeName: node-1}", "tpm", "gce", []string{"profile: google}", "profile: google, projects: [example-project]}", "mode: Inventory", "mode: FirstUse"}, "node-1"},
		"first by a token":            {"{nodeName: node-1}", "gce", "tpm", []string{"mode: Inventory", "mode: FirstUse, kind: gce"}, "node-1"},
		"recorded, and listed anew":   {"{nodeName: node-1}, {nodeName: node-2, identity: 'gce:example-project/1', kind: gce}", "tpm", "gce", []string{"profile: google}", "profile: google, projects: [example-project]}", "mode: Inventory", "mode: FirstUse"}, "node-2"},
		"recorded by a token, as new": {"{nodeName: node-1}, {nodeName: node-2, identity: 'gce:example-project/1', kind: tpm}", "gce", "tpm", []string{"mode: Inventory", "mode: FirstUse, kind: gce"}, "node-2"},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.plane(t, "machines: ["+row.inventory+"]", row.changes...)
			if row.changes == nil { // a listed machine is refused by the other kind from the first
				if err := p.join(t, provers[row.other], row.node, csr.SignerKubeAPIServerClientKubelet); !errors.Is(err, attest.CheckMembership) {
					t.Errorf("before it has joined: %v", err)
				}
			}
			testkit.MustDo(p.join(t, provers[row.known], "node-1", csr.SignerKubeAPIServerClientKubelet))
			for _, signer := range []string{csr.SignerKubeAPIServerClientKubelet, "cluster.x-k8s.io/kube-apiserver-client-kubelet-" + row.other} {
				if err := p.join(t, provers[row.other], row.node, signer); !errors.Is(err, attest.CheckMembership) {
					t.Errorf("%s: %v", signer, err)
				}
			}
			// The other kind's signer accepts no such evidence.
			if err := p.join(t, provers[row.other], row.node, "cluster.x-k8s.io/kube-apiserver-client-kubelet-"+row.known); err == nil {
				t.Error("it is taken under the other kind's signer")
			}
			if row.known == "gce" { // no process on the machine gets a second key for a token
				if err := p.join(t, provers["gce"], "node-1", csr.SignerKubeAPIServerClientKubelet); !errors.Is(err, attest.Check("registry-requester")) {
					t.Errorf("a bootstrap token and a document: %v", err)
				}
			}
		})
	}
}
