package tpmcert

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509/pkix"
	"encoding/asn1"

	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// labPathLength is the basic constraints of a CA with so many intermediates below it.
func labPathLength(n byte) pkix.Extension {
	return pkix.Extension{Id: tpmlab.IsCA.Id, Critical: true, Value: []byte{0x30, 6, 1, 1, 0xff, 2, 1, n}}
}

// labKeyUsage is a key usage of the one bit of RFC 5280, section 4.2.1.3.
func labKeyUsage(bit int) pkix.Extension {
	value, _ := asn1.Marshal(asn1.BitString{Bytes: []byte{0x80 >> bit}, BitLength: bit + 1})
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 15}, Critical: true, Value: value}
}

// What CA certificates say of themselves decides before any signature, on both roads,
// and where links are over SHA-1, which crypto/x509 never looks at.
func TestRulesOfCAs(t *testing.T) {
	replace := func(e ...pkix.Extension) func(*tpmlab.Cert) { return func(c *tpmlab.Cert) { c.Extensions = e } }
	add := func(e ...pkix.Extension) func(*tpmlab.Cert) {
		return func(c *tpmlab.Cert) { c.Extensions = append([]pkix.Extension{tpmlab.IsCA}, e...) }
	}
	version1 := func(c *tpmlab.Cert) { c.Version1 = true }
	harmless := criticalExtension()
	harmless.Critical = false
	for name, c := range map[string]struct {
		root, upper, lower func(*tpmlab.Cert)
		want               refusal.Check
	}{
		"good":                              {nil, nil, nil, ""},
		"a root of version 1":               {version1, nil, nil, ""},
		"a root of version 3 that is no CA": {replace(tpmlab.IsNoCA), nil, nil, CheckCertificateChain},
		"a root of version 3 without constraints": {replace(), nil, nil, CheckCertificateChain},
		"a root that signs no certificates":       {add(labKeyUsage(0)), nil, nil, CheckCertificateChain},
		"a root that signs certificates":          {add(labKeyUsage(5)), nil, nil, ""},
		"a root with a critical extension":        {add(criticalExtension()), nil, nil, CheckCertificateChain},
		"a root with an extension":                {add(harmless), nil, nil, ""},
		"an intermediate of version 1":            {nil, version1, nil, CheckCertificateChain},
		"the lower one of version 1":              {nil, nil, version1, CheckCertificateChain},
		"an intermediate that is no CA":           {nil, replace(tpmlab.IsNoCA), nil, CheckCertificateChain},
		"an intermediate without constraints":     {nil, replace(), nil, CheckCertificateChain},
		"the lower one without constraints":       {nil, nil, replace(), CheckCertificateChain},
		"an intermediate that signs data":         {nil, nil, add(labKeyUsage(0)), CheckCertificateChain},
		"an intermediate that signs lists":        {nil, nil, add(labKeyUsage(6)), CheckCertificateChain},
		"an intermediate that signs certificates": {nil, add(labKeyUsage(5)), add(labKeyUsage(5)), ""},
		"a critical extension":                    {nil, nil, add(criticalExtension()), CheckCertificateChain},
		"an extension":                            {nil, nil, add(harmless), ""},
		"path lengths that just suffice":          {replace(labPathLength(2)), replace(labPathLength(1)), replace(labPathLength(0)), ""},
		"a root's, one less":                      {replace(labPathLength(1)), nil, nil, CheckCertificateChain},
		"a root's, none":                          {replace(labPathLength(0)), nil, nil, CheckCertificateChain},
		"an intermediate's, one less":             {nil, replace(labPathLength(0)), nil, CheckCertificateChain},
	} {
		for _, kind := range []string{"road AK", "road EK", "road EK over SHA-1"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				keys, algorithm := [3]crypto.Signer{tpmlab.NewP256(t), tpmlab.NewP256(t), tpmlab.NewP256(t)}, tpmlab.ECDSASHA256
				if kind == "road EK over SHA-1" {
					known := rsaTestKeys()
					keys, algorithm = [3]crypto.Signer{known[0], known[1], known[0]}, tpmlab.SHA1RSA
				}
				road := attest.RoadEK
				if kind == "road AK" {
					road = attest.RoadAK
				}
				root, upper, lower := tpmlab.CACert("root", "root", keys[0]), tpmlab.CACert("upper", "root", keys[1]), tpmlab.CACert("lower", "upper", keys[2])
				leaf := leafOn(road, "lower", t)
				for n, ca := range []*tpmlab.Cert{root, upper, lower, leaf} {
					if ca.Algorithm = []byte(algorithm); n < 3 && []func(*tpmlab.Cert){c.root, c.upper, c.lower}[n] != nil {
						[]func(*tpmlab.Cert){c.root, c.upper, c.lower}[n](ca)
					}
				}
				l := newLab(t, allowingSHA1(), root)
				w, _, err := l.verify(t.Context(), road, [][]byte{leaf.Sign(t, keys[2]), lower.Sign(t, keys[1]), upper.Sign(t, keys[0])})
				tpmlab.ExpectCheck(t, err, c.want)
				if c.want != "" && w.Signatures() != 0 {
					t.Errorf("refused after %d signatures", w.Signatures())
				}
			})
		}
	}
}

// A signature algorithm goes with one kind of key: a certificate's signature is never verified by
// another kind of key.
func TestAlgorithmsOfLinks(t *testing.T) {
	rsaKey, ecKey := crypto.Signer(rsaTestKeys()[0]), crypto.Signer(tpmlab.NewP256(t))
	fits := func(key crypto.Signer, algorithm string, road attest.Road) refusal.Check {
		_, isRSA := key.(*rsa.PrivateKey)
		switch {
		case isRSA && (algorithm == tpmlab.SHA256RSA || algorithm == tpmlab.PSSSHA256), !isRSA && algorithm == tpmlab.ECDSASHA256:
			return ""
		case isRSA && algorithm == tpmlab.SHA1RSA && road == attest.RoadEK:
			return ""
		case isRSA && algorithm == tpmlab.SHA1RSA:
			return checkCertificateSHA1
		}
		return CheckCertificateChain
	}
	for name, algorithm := range map[string]string{"RSA over SHA-1": tpmlab.SHA1RSA, "RSA over SHA-256": tpmlab.SHA256RSA, "RSA over MD5": md5RSA,
		"RSAPSS": tpmlab.PSSSHA256, "ECDSA over SHA-1": ecdsaSHA1, "ECDSA over SHA-256": tpmlab.ECDSASHA256, "Ed25519": withEd25519, "unknown": unknown} {
		for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
			for kind, key := range map[string]crypto.Signer{"RSA key": rsaKey, "EC key": ecKey} {
				t.Run(name+"/"+kind+"/"+road.String(), func(t *testing.T) {
					want := fits(key, algorithm, road)
					l := newLab(t, allowingSHA1(), tpmlab.CACert("root", "root", key))
					leaf := leafOn(road, "root", t)
					leaf.Algorithm = []byte(algorithm)
					w, _, err := l.verify(t.Context(), road, [][]byte{leaf.Sign(t, key)})
					tpmlab.ExpectCheck(t, err, want)
					if want != "" && w.Signatures() != 0 {
						t.Errorf("refused after %d signatures", w.Signatures())
					}
				})
			}
		}
	}
}
