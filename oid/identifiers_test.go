package oid

import (
	"os"
	"regexp"
	"testing"
)

// dotted is written from the source documents, so that the constants' bytes have
// something to be held against.
var dotted = map[OID]string{
	KubernetesNodeProviderIdentifier: "1.3.6.1.4.1.11129.2.1.21",
	KubernetesUID:                    "1.3.6.1.4.1.57683.2",
	AzureKpAK:                        "1.3.6.1.4.1.311.10.3.12",
	TCGKpEKCertificate:               "2.23.133.8.1",
	TCGKpPlatformCertificate:         "2.23.133.8.2",
	TCGKpAIKCertificate:              "2.23.133.8.3",
	TCGAtTPMManufacturer:             "2.23.133.2.1",
	TCGAtTPMModel:                    "2.23.133.2.2",
	TCGAtTPMVersion:                  "2.23.133.2.3",
	TCGAtTPMSpecification:            "2.23.133.2.16",
	TCGAttestTPMCertify:              "2.23.133.20.1",
	TCGAttestTPMQuote:                "2.23.133.20.2",
	TCGTPM20:                         "2.23.133.1.2",
	TCGCapVerifiedTPMResidency:       "2.23.133.11.1.1",
	TCGCapVerifiedTPMFixed:           "2.23.133.11.1.2",
	TCGCapVerifiedTPMRestricted:      "2.23.133.11.1.3",
	PermanentIdentifier:              "1.3.6.1.5.5.7.8.3",
	HardwareModuleName:               "1.3.6.1.5.5.7.8.4",
	nodeAttest:                       "2.25.274969308675442717258829974567625345604",
	NodeAttestHello:                  "2.25.274969308675442717258829974567625345604.1",
	NodeAttestProof:                  "2.25.274969308675442717258829974567625345604.2",
	NodeAttestQuote:                  "2.25.274969308675442717258829974567625345604.3",
	NodeAttestEventLog:               "2.25.274969308675442717258829974567625345604.4",
	NodeAttestDocumentHello:          "2.25.274969308675442717258829974567625345604.5",
	NodeAttestDocumentProof:          "2.25.274969308675442717258829974567625345604.6",
	NodeAttestDocument:               "2.25.274969308675442717258829974567625345604.7",
	ExtensionRequest:                 "1.2.840.113549.1.9.14",
	ChallengePassword:                "1.2.840.113549.1.9.7",
	IDAAAttestation:                  "1.2.840.113549.1.9.16.2.59",
	SubjectDirectoryAttributes:       "2.5.29.9",
	SubjectKeyIdentifier:             "2.5.29.14",
	KeyUsage:                         "2.5.29.15",
	SubjectAltName:                   "2.5.29.17",
	BasicConstraints:                 "2.5.29.19",
	nameConstraints:                  "2.5.29.30",
	crlDistributionPoints:            "2.5.29.31",
	CertificatePolicies:              "2.5.29.32",
	AuthorityKeyIdentifier:           "2.5.29.35",
	ExtendedKeyUsage:                 "2.5.29.37",
	authorityInfoAccess:              "1.3.6.1.5.5.7.1.1",
	AnyExtendedKeyUsage:              "2.5.29.37.0",
	KpServerAuth:                     "1.3.6.1.5.5.7.3.1",
	kpClientAuth:                     "1.3.6.1.5.5.7.3.2",
	CommonName:                       "2.5.4.3",
	SerialNumber:                     "2.5.4.5",
	country:                          "2.5.4.6",
	locality:                         "2.5.4.7",
	province:                         "2.5.4.8",
	Organization:                     "2.5.4.10",
	OrganizationalUnit:               "2.5.4.11",
	RSAEncryption:                    "1.2.840.113549.1.1.1",
	RSAESOAEP:                        "1.2.840.113549.1.1.7",
	ECPublicKey:                      "1.2.840.10045.2.1",
	curveP224:                        "1.3.132.0.33",
	CurveP256:                        "1.2.840.10045.3.1.7",
	curveP384:                        "1.3.132.0.34",
	curveP521:                        "1.3.132.0.35",
	Ed25519:                          "1.3.101.112",
	SHA1WithRSA:                      "1.2.840.113549.1.1.5",
	SHA256WithRSA:                    "1.2.840.113549.1.1.11",
	SHA384WithRSA:                    "1.2.840.113549.1.1.12",
	SHA512WithRSA:                    "1.2.840.113549.1.1.13",
	RSASSAPSS:                        "1.2.840.113549.1.1.10",
	ECDSAWithSHA1:                    "1.2.840.10045.4.1",
	ECDSAWithSHA256:                  "1.2.840.10045.4.3.2",
	ECDSAWithSHA384:                  "1.2.840.10045.4.3.3",
	ECDSAWithSHA512:                  "1.2.840.10045.4.3.4",
}

func TestConstantsAreTheirDottedForms(t *testing.T) {
	for o, text := range dotted {
		parsed, err := Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if parsed != o {
			t.Errorf("%s: constant %x, want %x", text, string(o), string(parsed))
		}
		if o.String() != text {
			t.Errorf("%s: String() = %s", text, o)
		}
	}
}

func TestKnownIsCompleteSortedAndNamed(t *testing.T) {
	all := known()
	if len(all) != len(dotted) {
		t.Errorf("%d identifiers are known, the test has %d", len(all), len(dotted))
	}
	named := map[string]OID{}
	for i, o := range all {
		if i > 0 && all[i-1] >= o {
			t.Errorf("%v stands after %v", o, all[i-1])
		}
		if _, ok := dotted[o]; !ok {
			t.Errorf("the test lacks %v", o)
		}
		name := o.Name()
		if other, ok := named[name]; ok || name == "" {
			t.Errorf("%v and %v are both named %q", o, other, name)
		}
		named[name] = o
	}
}

// TestEveryConstantIsKnown reads the source, so that a new constant cannot be forgotten
// in names.
func TestEveryConstantIsKnown(t *testing.T) {
	source, err := os.ReadFile("identifiers.go")
	if err != nil {
		t.Fatal(err)
	}
	constants := regexp.MustCompile(`(?m)^\t(\w+)\s+OID\s+= `).FindAllSubmatch(source, -1)
	if len(constants) != len(known()) {
		t.Errorf("identifiers.go has %d constants, %d are known", len(constants), len(known()))
	}
}

func TestPrivateIdentifiersDoNotFitASN1(t *testing.T) {
	for _, o := range []OID{nodeAttest, NodeAttestHello, NodeAttestProof, NodeAttestQuote, NodeAttestEventLog, NodeAttestDocumentHello, NodeAttestDocumentProof, NodeAttestDocument} {
		if id, ok := o.ASN1(); ok {
			t.Errorf("%v fits as %v", o, id)
		}
	}
	if AzureKpAK.Name() != "szOID_KP_DOCUMENT_SIGNING" || OID("\x2a").Name() != "" {
		t.Error("Name is wrong")
	}
}

// known returns every identifier of the package, in the order of its bytes.
func known() []OID {
	all := make([]OID, len(identifiers))
	for i := range identifiers {
		all[i] = identifiers[i].id
	}
	return all
}
