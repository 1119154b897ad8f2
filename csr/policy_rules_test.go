package csr_test

import (
	"bytes"
	"context"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

// ruleCase is the smallest change to a good request, and the rules that it breaks:
// none where the change is allowed.
type ruleCase struct {
	name   string
	change func(*requestFixture)
	want   []csr.Check
}

func runRuleCases(t *testing.T, signerName string, class csr.RequesterClass, cases []ruleCase) {
	t.Helper()
	cases = append(cases, ruleCase{name: "good", change: func(*requestFixture) {}})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := goodFixture(signerName, class)
			c.change(f)
			checked, err := f.check(t)
			if got := brokenRules(err); !slices.Equal(got, c.want) {
				t.Errorf("broken rules %q, want %q (%v)", got, c.want, err)
			}
			if len(c.want) == 0 && err != nil {
				t.Errorf("refused: %v", err)
			}
			if err != nil && checked != nil && f.target == f.request.Spec.SignerName {
				t.Error("a refused request was returned as checked")
			}
			verdict := csr.VerdictDeny
			if slices.Contains(c.want, csr.CheckRequestClosed) {
				verdict = csr.VerdictIgnore
			}
			if d := csr.Decide(err); len(c.want) > 0 && d.Verdict != verdict {
				t.Errorf("decision %+v, want %v", d, verdict)
			}
		})
	}
}

func rules(r ...csr.Check) []csr.Check { return r }

func TestPolicyRulesOfTheObject(t *testing.T) {
	condition := func(conditionType, status string) func(*requestFixture) {
		return func(f *requestFixture) {
			f.request.Status.Conditions = []csr.Condition{{Type: conditionType, Status: status}}
		}
	}
	hello := func(target string) func(*requestFixture) {
		return func(f *requestFixture) { f.request.Spec.SignerName, f.target = csr.SignerChallengeTPM, target }
	}
	usages := func(u ...string) func(*requestFixture) {
		return func(f *requestFixture) { f.request.Spec.Usages = u }
	}
	expiration := func(seconds int32) func(*requestFixture) {
		return func(f *requestFixture) { f.request.Spec.ExpirationSeconds = &seconds }
	}
	runRuleCases(t, csr.SignerClientTPM, csr.RequesterBootstrap, []ruleCase{
		{"denied", condition("Denied", "True"), rules(csr.CheckRequestClosed)},
		{"denied with another status", condition("Denied", "False"), rules(csr.CheckRequestClosed)},
		{"failed", condition("Failed", "True"), rules(csr.CheckRequestClosed)},
		{"approved", condition("Approved", "True"), nil},
		{"condition of another type", condition("Seen", "True"), nil},
		{"has a certificate", func(f *requestFixture) { f.request.Status.Certificate = []byte{1} }, rules(csr.CheckRequestClosed)},
		{"being deleted", func(f *requestFixture) { f.request.Metadata.DeletionTimestamp = new(time.Time) }, rules(csr.CheckRequestClosed)},
		{"annotation of the requester", func(f *requestFixture) {
			f.request.Metadata.Annotations = map[string]string{"cluster-x-k8s-io/tpm-endorsement-key": "mine"}
		}, nil},

		{"hello for an unknown signer", hello("example.com/kubelet"), rules(csr.CheckSignerName)},
		{"hello for a signer's misspelling", hello("cluster-x-k8s-io/kube-apiserver-client-kubelet-tpm"), rules(csr.CheckSignerName)},
		{"hello for a signer in upper case", hello(strings.ToUpper(csr.SignerClientTPM)), rules(csr.CheckSignerName)},
		{"hello for a signer not served", func(f *requestFixture) {
			hello(csr.SignerClientTPM)(f)
			f.policy.SignerNames = []string{csr.SignerServingTPM}
		}, rules(csr.CheckSignerName)},
		{"hello", func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerChallengeTPM }, nil},
		{"hello of another provider", func(f *requestFixture) {
			f.request.Spec.SignerName = "cluster.x-k8s.io/kubelet-attestation-challenge-other"
		}, rules(csr.CheckSignerName)},
		{"filed under a third signer", func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerServingTPM }, rules(csr.CheckSignerName)},

		{"usages in another order", usages("client auth", "digital signature"), nil},
		{"key encipherment", usages("digital signature", "key encipherment", "client auth"), nil},
		{"no usages", usages(), rules(csr.CheckUsages)},
		{"usage missing", usages("client auth"), rules(csr.CheckUsages)},
		{"key encipherment in place of signature", usages("key encipherment", "client auth"), rules(csr.CheckUsages)},
		{"usage twice", usages("digital signature", "client auth", "client auth"), rules(csr.CheckUsages)},
		{"server auth too", usages("digital signature", "client auth", "server auth"), rules(csr.CheckUsages)},
		{"server auth instead", usages("digital signature", "server auth"), rules(csr.CheckUsages)},
		{"cert sign too", usages("digital signature", "client auth", "cert sign"), rules(csr.CheckUsages)},
		{"any", usages("any"), rules(csr.CheckUsages)},
		{"usage in another case", usages("Digital Signature", "client auth"), rules(csr.CheckUsages)},

		{"no expiration", func(f *requestFixture) { f.request.Spec.ExpirationSeconds = nil }, nil},
		{"600 s", expiration(600), nil},
		{"599 s", expiration(599), rules(csr.CheckExpiration)},
		{"0 s", expiration(0), rules(csr.CheckExpiration)},
		{"negative expiration", expiration(-3600), rules(csr.CheckExpiration)},
		{"a year, which the CA cuts", expiration(365 * 86400), nil},
	})
}

func TestPolicyRulesOfKubernetesOwnSigners(t *testing.T) {
	expiration := func(seconds int32) func(*requestFixture) {
		return func(f *requestFixture) { f.request.Spec.ExpirationSeconds = &seconds }
	}
	none := func(f *requestFixture) { f.request.Spec.ExpirationSeconds = nil }
	runRuleCases(t, csr.SignerKubeAPIServerClientKubelet, csr.RequesterBootstrap, []ruleCase{
		{"no expiration", none, rules(csr.CheckExpiration)},
		{"no expiration, duration stated", func(f *requestFixture) {
			none(f)
			f.policy.BuiltInSignerDuration = time.Hour
		}, nil},
		{"a day", expiration(86400), nil},
		{"a day and a second", expiration(86401), rules(csr.CheckExpiration)},
		{"within a longer cap", func(f *requestFixture) {
			expiration(86401)(f)
			f.policy.MaxLifetime = 48 * time.Hour
		}, nil},
		{"any provider's evidence", func(f *requestFixture) { f.provider, f.data = "tpm/v1", []byte{1} }, nil},
		{"hello", func(f *requestFixture) { f.request.Spec.SignerName = csr.SignerChallengeTPM }, nil},
	})
	record := func(change func(*csr.IssuedRecord)) func(*requestFixture) {
		return func(f *requestFixture) { change(f.records[goodCredential]) }
	}
	runRuleCases(t, csr.SignerKubeletServing, csr.RequesterNode, []ruleCase{
		{"no credential ID", func(f *requestFixture) { f.request.User.Extra = nil }, rules(csr.CheckCredential)},
		{"two credential IDs", func(f *requestFixture) {
			f.request.User.Extra[csr.ExtraCredentialID] = []string{goodCredential, goodCredential}
		}, rules(csr.CheckCredential)},
		{"credential that was not recorded", func(f *requestFixture) { f.records = nil }, rules(csr.CheckCredential)},
		{"credential of another node", record(func(r *csr.IssuedRecord) { r.NodeName = "node-2" }), rules(csr.CheckCredential)},
		{"credential that was not attested", record(func(r *csr.IssuedRecord) { r.SignerName = csr.SignerClientInsecure }), rules(csr.CheckCredential)},
		{"recovery credential", record(func(r *csr.IssuedRecord) { r.SignerName = csr.SignerRecoveryTPM }), rules(csr.CheckCredential)},
		{"serving credential", record(func(r *csr.IssuedRecord) { r.SignerName = csr.SignerServingTPM }), rules(csr.CheckCredential)},
		{"record of another credential", record(func(r *csr.IssuedRecord) { r.CredentialID += "0" }), rules(csr.CheckCredential)},
	})
}

func TestPolicyRulesOfTheSubject(t *testing.T) {
	rdns := func(rdns ...[]subjectAttribute) func(*requestFixture) {
		return func(f *requestFixture) { f.builder.rdns = rdns }
	}
	one := func(a subjectAttribute) []subjectAttribute { return []subjectAttribute{a} }
	cn, o := one(commonName("system:node:node-1")), one(organization("system:nodes"))
	text := func(id oid.OID, tag cryptobyteasn1.Tag, value string) []subjectAttribute {
		return one(subjectAttribute{id, tag, value})
	}
	utf8 := cryptobyteasn1.UTF8String
	runRuleCases(t, csr.SignerClientTPM, csr.RequesterBootstrap, []ruleCase{
		{"other order", rdns(cn, o), nil},
		{"printable strings", rdns(text(oid.Organization, cryptobyteasn1.PrintableString, "system:nodes"), text(oid.CommonName, cryptobyteasn1.PrintableString, "system:node:node-1")), nil},
		{"no common name", rdns(o), rules(csr.CheckSubjectCommonName)},
		{"two common names", rdns(o, cn, one(commonName("system:node:node-2"))), rules(csr.CheckSubjectCommonName)},
		{"the same common name twice", rdns(o, cn, cn), rules(csr.CheckSubjectCommonName)},
		{"common name without prefix", rdns(o, one(commonName("node-1"))), rules(csr.CheckSubjectCommonName)},
		{"empty node name", rdns(o, one(commonName("system:node:"))), rules(csr.CheckSubjectCommonName)},
		{"node name in upper case", rdns(o, one(commonName("system:node:Node-1"))), rules(csr.CheckSubjectCommonName)},
		{"node name with a slash", rdns(o, one(commonName("system:node:node-1/x"))), rules(csr.CheckSubjectCommonName)},
		{"node name with a NUL", rdns(o, one(commonName("system:node:node-1\x00"))), rules(csr.CheckSubjectCommonName)},
		{"recovery name", rdns(o, one(commonName("nodeattest:recovery:node-1"))), rules(csr.CheckSubjectCommonName)},
		{"IA5 strings", rdns(text(oid.Organization, cryptobyteasn1.IA5String, "system:nodes"), text(oid.CommonName, cryptobyteasn1.IA5String, "system:node:node-1")), nil},
		{"common name in a T61String", rdns(o, text(oid.CommonName, cryptobyteasn1.T61String, "system:node:node-1")), rules(csr.CheckSubjectCommonName)},
		{"organization in an OCTET STRING", rdns(text(oid.Organization, cryptobyteasn1.OCTET_STRING, "system:nodes"), cn), rules(csr.CheckSubjectOrganization)},
		{"common name in a BMPString", rdns(o, text(oid.CommonName, 30, "\x00s\x00y")), rules(csr.CheckSubjectCommonName)},
		{"another node that no machine has", rdns(o, one(commonName("system:node:node-2"))), rules(csr.CheckMachineUnknown)},
		{"no organization", rdns(cn), rules(csr.CheckSubjectOrganization)},
		{"organization system:masters", rdns(one(organization("system:masters")), cn), rules(csr.CheckSubjectOrganization)},
		{"organization system:masters too", rdns(o, one(organization("system:masters")), cn), rules(csr.CheckSubjectOrganization)},
		{"organization twice", rdns(o, o, cn), rules(csr.CheckSubjectOrganization)},
		{"organization in upper case", rdns(one(organization("System:Nodes")), cn), rules(csr.CheckSubjectOrganization)},
		{"organization with a space", rdns(one(organization("system:nodes ")), cn), rules(csr.CheckSubjectOrganization)},
		{"organizational unit", rdns(o, text(oid.OrganizationalUnit, utf8, "x"), cn), rules(csr.CheckSubjectExtraRDN)},
		{"user's UID", rdns(o, cn, text(oid.KubernetesUID, utf8, "0")), rules(csr.CheckSubjectExtraRDN)},
		{"serial number", rdns(o, cn, text(oid.SerialNumber, cryptobyteasn1.PrintableString, "1")), rules(csr.CheckSubjectExtraRDN)},
		{"both attributes in one RDN", rdns([]subjectAttribute{organization("system:nodes"), commonName("system:node:node-1")}), rules(csr.CheckSubjectMultiValue)},
		{"empty subject", rdns(), rules(csr.CheckSubjectCommonName, csr.CheckSubjectOrganization)},
	})
	runRuleCases(t, csr.SignerRecoveryTPM, csr.RequesterNode, []ruleCase{
		{"node's name", rdns(one(organization("nodeattest:recovery")), cn), rules(csr.CheckSubjectCommonName)},
		{"nodes' organization", rdns(o, one(commonName("nodeattest:recovery:node-1"))), rules(csr.CheckSubjectOrganization)},
		{"key encipherment", func(f *requestFixture) { f.request.Spec.Usages = csr.PurposeRecovery.Usages(true) }, nil},
	})
}

func TestPolicyRulesOfAttributesAndExtensions(t *testing.T) {
	extension := func(e pkix.Extension) func(*requestFixture) {
		return func(f *requestFixture) { f.builder.extensions = append(f.builder.extensions, e) }
	}
	id := func(arcs ...int) asn1.ObjectIdentifier { return arcs }
	flag := id(1, 3, 6, 1, 4, 1, 55555, 1)
	flagged := func(value string, critical bool) func(*requestFixture) {
		return func(f *requestFixture) {
			f.policy.Flag = flag
			extension(pkix.Extension{Id: flag, Critical: critical, Value: []byte(value)})(f)
		}
	}
	goodID := providerIDExtension(t, goodProviderID)
	criticalID := goodID
	criticalID.Critical = true
	runRuleCases(t, csr.SignerClientTPM, csr.RequesterBootstrap, []ruleCase{
		{"provider ID", extension(goodID), nil},
		{"provider ID, required", func(f *requestFixture) { extension(goodID)(f); f.policy.RequireProviderID = true }, nil},
		{"no provider ID, required", func(f *requestFixture) { f.policy.RequireProviderID = true }, rules(csr.CheckProviderIDMissing)},
		{"other machine's provider ID", extension(providerIDExtension(t, "test://other")), rules(csr.CheckProviderIDMismatch)},
		{"provider ID in another case", extension(providerIDExtension(t, strings.ToUpper(goodProviderID))), rules(csr.CheckProviderIDMismatch)},
		{"Azure's provider ID in another case", func(f *requestFixture) {
			extension(providerIDExtension(t, "azure:///subscriptions/s/resourceGroups/group"))(f)
			f.machine.ProviderID = "azure:///subscriptions/s/resourcegroups/Group"
		}, nil},
		{"provider ID that the inventory does not know", func(f *requestFixture) {
			extension(providerIDExtension(t, "test://other"))(f)
			f.machine.ProviderID = ""
		}, nil},
		{"critical provider ID", extension(criticalID), rules(csr.CheckProviderID)},
		{"provider ID twice", func(f *requestFixture) { extension(goodID)(f); extension(goodID)(f) }, rules(csr.CheckRequestExtensions)},

		{"CA extension", extension(pkix.Extension{Id: id(2, 5, 29, 19), Critical: true, Value: []byte("\x30\x03\x01\x01\xff")}), rules(csr.CheckExtensionNotAllowed)},
		{"CA false extension", extension(pkix.Extension{Id: id(2, 5, 29, 19), Value: []byte("\x30\x00")}), rules(csr.CheckExtensionNotAllowed)},
		{"key usage extension", extension(pkix.Extension{Id: id(2, 5, 29, 15), Value: []byte("\x03\x02\x02\x04")}), rules(csr.CheckExtensionNotAllowed)},
		{"name constraints", extension(pkix.Extension{Id: id(2, 5, 29, 30), Value: []byte("\x30\x00")}), rules(csr.CheckExtensionNotAllowed)},
		{"private extension", extension(pkix.Extension{Id: id(1, 2, 3, 4), Value: []byte{5, 0}}), rules(csr.CheckExtensionNotAllowed)},

		{"unknown flag", extension(pkix.Extension{Id: flag, Value: []byte("\x01\x01\xff")}), rules(csr.CheckExtensionNotAllowed)},
		{"flag", flagged("\x01\x01\xff", false), nil},
		{"flag, required", func(f *requestFixture) { flagged("\x01\x01\xff", false)(f); f.policy.RequireFlag = true }, nil},
		{"no flag, required", func(f *requestFixture) { f.policy.Flag, f.policy.RequireFlag = flag, true }, rules(csr.CheckFlag)},
		{"flag false", flagged("\x01\x01\x00", false), rules(csr.CheckFlag)},
		{"flag of another true", flagged("\x01\x01\x01", false), rules(csr.CheckFlag)},
		{"critical flag", flagged("\x01\x01\xff", true), rules(csr.CheckFlag)},

		{"challenge password", func(f *requestFixture) {
			f.builder.attributes = map[oid.OID][]byte{oid.ChallengePassword: []byte("\x0c\x01x")}
		}, rules(csr.CheckAttributeNotAllowed)},
		{"evidence as an attribute", func(f *requestFixture) {
			f.builder.attributes = map[oid.OID][]byte{oid.IDAAAttestation: []byte("\x30\x00")}
		}, rules(csr.CheckAttributeNotAllowed)},

		{"evidence of another provider", func(f *requestFixture) { f.provider = "other/v1" }, rules(csr.CheckAttestationProvider)},
		{"evidence of a provider with a longer name", func(f *requestFixture) { f.provider = "tpm-x/v1" }, rules(csr.CheckAttestationProvider)},
		{"evidence of the insecure provider", func(f *requestFixture) { f.provider = "insecure/v1" }, rules(csr.CheckAttestationProvider)},
		{"no evidence", func(f *requestFixture) { f.provider, f.data = "", nil }, rules(csr.CheckAttestationProvider)},
		{"another version, which the provider judges", func(f *requestFixture) { f.provider = "tpm/v2" }, nil},

		{"bad signature", func(f *requestFixture) { f.builder.badSignature = true }, rules(csr.CheckSignature)},
		{"bundle with a blank line", func(f *requestFixture) {
			f.bundle = func(good []byte) []byte { return append(good, '\n') }
		}, rules(csr.CheckBlock)},
		{"no request", func(f *requestFixture) {
			f.bundle = func([]byte) []byte { return nil }
		}, rules(csr.CheckBundleSize)},
		{"a private key after the request", func(f *requestFixture) {
			f.bundle = func(good []byte) []byte {
				return append(good, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"...)
			}
		}, rules(csr.CheckBlock)},
		{"two requests", func(f *requestFixture) {
			f.bundle = func(good []byte) []byte { return append(good, good...) }
		}, rules(csr.CheckBlock)},
	})
	runRuleCases(t, csr.SignerClientInsecure, csr.RequesterBootstrap, []ruleCase{
		{"evidence of its own", func(f *requestFixture) { f.provider, f.data = "insecure/v1", []byte{1} }, nil},
		{"evidence of the TPM provider", func(f *requestFixture) { f.provider, f.data = "tpm/v1", []byte{1} }, rules(csr.CheckAttestationProvider)},
	})
}

func TestPolicyRulesOfKeys(t *testing.T) {
	runRuleCases(t, csr.SignerClientTPM, csr.RequesterBootstrap, []ruleCase{
		{"P-384", func(f *requestFixture) { f.builder.key = p384Key() }, nil},
		{"RSA-2048", func(f *requestFixture) { f.builder.key = rsa2048() }, nil},
		{"RSA-1024", func(f *requestFixture) { f.builder.key = rsa1024() }, rules(csr.CheckKeyStrength)},
		{"RSA-1024 with a bad signature", func(f *requestFixture) {
			f.builder.key, f.builder.badSignature = rsa1024(), true
		}, rules(csr.CheckKeyStrength)},
		{"P-224", func(f *requestFixture) { f.builder.key = p224Key() }, rules(csr.CheckKeyStrength)},
		{"P-521", func(f *requestFixture) { f.builder.key = p521Key() }, rules(csr.CheckKeyStrength)},
		{"Ed25519", func(f *requestFixture) { f.builder.key = edKey() }, rules(csr.CheckKeyType)},
	})
}

func TestPolicyRulesOfMachines(t *testing.T) {
	runRuleCases(t, csr.SignerClientTPM, csr.RequesterBootstrap, []ruleCase{
		{"no machine", func(f *requestFixture) { f.machine = nil }, rules(csr.CheckMachineUnknown)},
		{"machine not ready", func(f *requestFixture) { f.machine.BootstrapReady = false }, rules(csr.CheckMachineNotReady)},
		{"machine of another node", func(f *requestFixture) { f.machine.NodeName = "node-2" }, rules(csr.CheckMachineOtherNode)},
		{"machine of no node yet", func(f *requestFixture) { f.machine.NodeName = "" }, nil},
	})
	for _, class := range []csr.RequesterClass{csr.RequesterNode, csr.RequesterRecovery} {
		runRuleCases(t, csr.SignerClientTPM, class, []ruleCase{
			{"machine not ready any more", func(f *requestFixture) { f.machine.BootstrapReady = false }, nil},
		})
	}
}

// TestInventoryReason: operators are told the inventory's reason for refusing a machine that
// it does not have, and not the requester.
func TestInventoryReason(t *testing.T) {
	for name, row := range map[string]struct {
		err          error
		detail, says bool
	}{
		"nothing more": {csr.ErrNoMachine, false, false},
		"a reason":     {fmt.Errorf("machine-7 of MachineDeployment blue is deleted: %w", csr.ErrNoMachine), true, true},
	} {
		f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
		f.policy.Machines = func(context.Context, csr.Question) (*csr.Machine, error) { return nil, row.err }
		_, err := f.check(t)
		d := csr.Decide(err)
		if !errors.Is(err, row.err) || d.Verdict != csr.VerdictDeny || !strings.Contains(d.Message, "no such machine") || strings.Contains(d.Message, "machine-7") ||
			(d.Detail != "") != row.detail || strings.Contains(d.Detail, "machine-7 of MachineDeployment blue") != row.says {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// Every rule of the table is broken alone by some case above or in the SAN tests;
// this finds a rule that was added without one.
func TestPolicyRulesAreAllTested(t *testing.T) {
	seen := map[csr.Check]bool{}
	for _, r := range slices.Concat(csr.PolicyChecks()) {
		if seen[r] {
			t.Errorf("rule %q is in the table twice", r)
		}
		seen[r] = true
		if strings.Trim(string(r), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || r == "" {
			t.Errorf("rule %q is not a kebab-case name", r)
		}
	}
	if len(seen) != 31 {
		t.Errorf("%d rules: when the table changes, add the smallest request that breaks the new rule alone", len(seen))
	}
}

// A request that breaks many rules is told all of them, in the table's order.
func TestPolicyReportsEveryViolation(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterNode)
	f.request.User.Groups = append(f.request.User.Groups, "system:masters")
	f.request.Spec.Usages = []string{"any"}
	f.builder.rdns = [][]subjectAttribute{{organization("system:masters")}, {commonName("system:node:node-2")}}
	f.builder.extensions = append(f.builder.extensions, sanExtension(dnsSAN("x")))
	f.builder.badSignature = true
	_, err := f.check(t)
	want := rules(csr.CheckRequestGroups, csr.CheckUsages, csr.CheckSubjectOrganization, csr.CheckRequesterOtherNode,
		csr.CheckSANOnClient, csr.CheckMachineUnknown, csr.CheckSignature)
	if got := brokenRules(err); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A request with thousands of faults of one kind makes a short report.
func TestPolicyReportIsBounded(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	for i := range 32 {
		f.builder.extensions = append(f.builder.extensions, pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3, i}, Value: []byte{5, 0}})
	}
	f.request.Spec.Usages = slices.Repeat([]string{strings.Repeat("x", 1000)}, 1000)
	f.request.User.Groups = slices.Repeat([]string{strings.Repeat("y", 1000)}, 1000)
	_, err := f.check(t)
	if err == nil || len(err.Error()) > 8<<10 {
		t.Errorf("a report of %d bytes", len(err.Error()))
	}
	if d := csr.Decide(err); len(d.Message) > csr.MaxMessageSize || bytes.ContainsAny([]byte(d.Message), "\n\r") {
		t.Errorf("a message of %d bytes", len(d.Message))
	}
}
