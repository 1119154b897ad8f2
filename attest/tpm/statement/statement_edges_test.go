package statement

import (
	"bytes"
	"crypto/ecdsa"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// keyWithZeroX is a P-256 key whose X, and X alone, begins with a zero byte.
func keyWithZeroX(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	for range 100_000 {
		key := mustECDSA(tpmlab.P256().Curve)
		point, err := key.PublicKey.Bytes()
		testkit.NoError(t, err)
		if point[1] == 0 && point[33] != 0 {
			return key
		}
	}
	t.Fatal("no key whose X begins with a zero byte")
	return nil
}

// A key that was loaded from outside has its Name as its Qualified Name, which no restricted key
// has, whichever way the TPM writes its coordinates.
func TestSignersFromOutside(t *testing.T) {
	for name, ak := range forgers(t) {
		t.Run(name, func(t *testing.T) {
			f := goodForgery(t, ak, tpmlab.P256b().Public())
			f.verify(t, "")
			f.attest.QualifiedSigner = ak.public.Name()
			f.verify(t, checkQualifiedSigner)
		})
	}
	ak := newForger(t, keyWithZeroX(t), schemeECDSA)
	narrow := changed(t, ak.public, func(p *Public) { p.X = p.X[1:] })
	for name, areas := range map[string][2]*Public{"as received": {ak.public, ak.public}, "narrow": {ak.public, narrow}, "full": {narrow, ak.public}} {
		t.Run("X with a zero byte, "+name, func(t *testing.T) {
			f := goodForgery(t, ak, tpmlab.P256b().Public())
			f.useAK(areas[0])
			f.verify(t, "")
			f.attest.QualifiedSigner = areas[1].Name()
			f.verify(t, checkQualifiedSigner)
			f.attest.QualifiedSigner = QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, areas[1].Name())
			if got := f.verify(t, ""); got.ClockTrusted != (areas[0] == areas[1]) {
				t.Errorf("clock trusted: %v", got.ClockTrusted)
			}
		})
	}
}

// A statement that names no signer is not a primary key's, and no hierarchy is stated where the
// attestation key's Name is not known.
func TestSignedByPrimaryOfNobody(t *testing.T) {
	name := tpmlab.DigestName(1)
	for what, c := range map[string]struct {
		in   CertifyInput
		want bool
	}{
		"neither":   {CertifyInput{Attest: &Attestation{}}, false},
		"no signer": {CertifyInput{Attest: &Attestation{}, AKName: name}, false},
		"no name":   {CertifyInput{Attest: &Attestation{QualifiedSigner: QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, name)}}, false},
		"both":      {CertifyInput{Attest: &Attestation{QualifiedSigner: QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, name)}, AKName: name}, true},
		"another":   {CertifyInput{Attest: &Attestation{QualifiedSigner: QualifiedNameOfPrimary(tpm2.TPMRHOwner, name)}, AKName: name}, false},
	} {
		t.Run(what, func(t *testing.T) {
			if got := c.in.SignedByPrimary(tpm2.TPMRHEndorsement); got != c.want {
				t.Errorf("got %v", got)
			}
			if got := c.in.clockTrusted(); got != c.want {
				t.Errorf("clock trusted: %v", got)
			}
		})
	}
}

// An unsuitable attestation key is refused with its own fault, in certify statements and in quotes.
func TestAreasOfAttestationKeys(t *testing.T) {
	ak := newForger(t, tpmlab.P256(), schemeECDSA)
	for name, c := range map[string]struct {
		area []byte
		want refusal.Check
	}{
		"no public area": {[]byte{1, 2, 3}, checkPublicEncoding},
		"a longer one":   {make([]byte, tpmwire.MaxTPMTPublicSize+1), checkPublicSize},
		"cut":            {ak.public.Raw[:len(ak.public.Raw)-1], checkPublicEncoding},
		"weak RSA":       {publicArea(t, tpmlab.RSA1024().Public(), testAKAttributes, schemeRSASSA).Raw, checkWeakKey},
		"a point off its curve": {changed(t, ak.public, func(p *Public) {
			p.X, p.Y = filled(32, 1), filled(32, 1)
		}).Raw, CheckPoint},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodForgery(t, ak, tpmlab.P256b().Public())
			f.options.AK = AKFromCredential(c.area)
			f.verify(t, c.want)
			q := goodQuoteForgery(t, ak)
			q.options.AK = AKFromCredential(c.area)
			q.verify(t, c.want)
		})
	}
}

func TestFormOfAttestationKeys(t *testing.T) {
	area := func(change func(*Public)) *Public {
		return changed(t, publicArea(t, tpmlab.P256().Public(), testAKAttributes, schemeECDSA), change)
	}
	for name, c := range map[string]struct {
		ak   *Public
		want refusal.Check
	}{
		"good":           {area(func(*Public) {}), ""},
		"weak RSA":       {publicArea(t, tpmlab.RSA1024().Public(), testAKAttributes, schemeRSASSA), checkWeakKey},
		"RSA with e = 3": {changed(t, publicArea(t, tpmlab.RSA2048().Public(), testAKAttributes, schemeRSASSA), func(p *Public) { p.Exponent = 3 }), checkWeakKey},
		"not restricted": {area(func(p *Public) { p.Attributes &^= AttributeRestricted }), checkAKAttributes},
		"no scheme":      {area(func(p *Public) { p.Scheme = noScheme }), checkAKScheme},
		"Name of SHA-1":  {area(func(p *Public) { p.NameAlg = tpm2.TPMAlgSHA1 }), checkNameAlgorithm},
	} {
		t.Run(name, func(t *testing.T) { tpmlab.ExpectCheck(t, CheckAKPublic(c.ak), c.want) })
	}
}

// A key that may neither sign nor decrypt is refused, also where decryption keys are accepted.
func TestKeysWithoutUse(t *testing.T) {
	const use = AttributeSign | AttributeDecrypt
	for name, c := range map[string]struct {
		attributes Attributes
		decryption bool
		want       refusal.Check
	}{
		"signs":                       {testResidentAttributes, false, ""},
		"signs, or may decrypt":       {testResidentAttributes, true, ""},
		"decrypts":                    {testResidentAttributes&^use | AttributeDecrypt, false, checkKeyAttributes},
		"decrypts, and may":           {testResidentAttributes&^use | AttributeDecrypt, true, ""},
		"does nothing":                {testResidentAttributes &^ use, false, checkKeyAttributes},
		"does nothing, where it may":  {testResidentAttributes &^ use, true, checkKeyAttributes},
		"does nothing, from software": {testSoftwareAttributes &^ use, true, checkKeyAttributes},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodForgery(t, newForger(t, tpmlab.P256(), schemeECDSA), tpmlab.RSA2048().Public())
			f.options.AllowDecryptionKey = c.decryption
			f.certify(changed(t, f.public, func(p *Public) { p.Attributes = c.attributes }))
			f.verify(t, c.want)
		})
	}
}

// A key that is neither fixed nor has a parent is not resident.
func TestResidence(t *testing.T) {
	ak := newForger(t, tpmlab.P256(), schemeECDSA)
	for name, c := range map[string]struct {
		attributes Attributes
		external   bool
		resident   bool
		want       refusal.Check
	}{
		"resident":                      {testResidentAttributes, false, true, ""},
		"can be duplicated":             {testSoftwareAttributes, false, false, ""},
		"moves with its parent":         {testSoftwareAttributes | AttributeFixedParent, false, false, ""},
		"from outside":                  {testSoftwareAttributes, true, false, ""},
		"from outside, says fixed":      {testResidentAttributes, true, false, checkResidencyClaim},
		"from outside, says its parent": {testSoftwareAttributes | AttributeFixedParent, true, false, checkResidencyClaim},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodForgery(t, ak, tpmlab.P256b().Public())
			area := changed(t, f.public, func(p *Public) { p.Attributes = c.attributes })
			if f.certify(area); c.external {
				f.certifyExternal(area)
			}
			if got := f.verify(t, c.want); got != nil && got.TPMResident != c.resident {
				t.Errorf("resident: %v", got.TPMResident)
			}
			f.options.RequireTPMResident = true
			if want := c.want; want == "" && !c.resident {
				f.verify(t, checkResidency)
			}
		})
	}
}

// A signature of another kind than the key's is refused before anything is computed,
// by the last function too.
func TestSignaturesOfOtherKinds(t *testing.T) {
	rsa, p256, p224 := tpmlab.RSA2048().Public(), tpmlab.P256().Public(), tpmlab.P224().Public()
	one := []byte{1}
	onECC := &Signature{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256, R: one, S: one}
	onRSA := &Signature{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256, RSA: make([]byte, 256)}
	tpmlab.ExpectCheck(t, onECC.checkForm(p256), "")
	tpmlab.ExpectCheck(t, onRSA.checkForm(rsa), "")
	tpmlab.ExpectCheck(t, onECC.checkForm(p224), checkSignatureScheme)
	tpmlab.ExpectCheck(t, onECC.checkForm(rsa), checkSignatureScheme)
	tpmlab.ExpectCheck(t, onRSA.checkForm(p256), checkSignatureScheme)
	tpmlab.ExpectCheck(t, onRSA.checkForm("key"), checkSignatureScheme)
	tpmlab.ExpectCheck(t, onRSA.verify(p256, one), checkSignatureScheme)
	tpmlab.ExpectCheck(t, onRSA.verify("key", one), checkSignatureScheme)
	tpmlab.ExpectCheck(t, onECC.verify(p256, one), checkSignature)
}

func TestVerifyQuoteWithoutInputs(t *testing.T) {
	f := goodQuoteForgery(t, newForger(t, tpmlab.P256(), schemeECDSA))
	for name, c := range map[string]struct {
		e *QuoteEvidence
		o QuoteOptions
	}{"no evidence": {nil, f.options}, "no options": {f.evidence(t), QuoteOptions{}}, "neither": {nil, QuoteOptions{}}} {
		t.Run(name, func(t *testing.T) {
			_, err := VerifyQuote(c.e, c.o)
			tpmlab.ExpectCheck(t, err, checkQuoteOptions)
		})
	}
	t.Run("no statement", func(t *testing.T) {
		e := f.evidence(t)
		e.Attest = e.Attest[:len(e.Attest)-1]
		_, err := VerifyQuote(e, f.options)
		tpmlab.ExpectCheck(t, err, checkAttestEncoding)
	})
	t.Run("no signature", func(t *testing.T) {
		e := f.evidence(t)
		e.Signature = e.Signature[:len(e.Signature)-1]
		_, err := VerifyQuote(e, f.options)
		tpmlab.ExpectCheck(t, err, checkSignatureEncoding)
	})
}

func TestNewPCRSelection(t *testing.T) {
	s, err := NewPCRSelection(tpm2.TPMAlgSHA256, 23, 0, 7)
	if err != nil || !bytes.Equal(s.Select, []byte{0x81, 0, 0x80}) {
		t.Errorf("%x, %v", s.Select, err)
	}
	for name, c := range map[string]struct {
		bank    tpm2.TPMAlgID
		indexes []int
		want    refusal.Check
	}{
		"no PCR":          {tpm2.TPMAlgSHA256, nil, CheckPCRSelection},
		"PCR 24":          {tpm2.TPMAlgSHA256, []int{24}, CheckPCRSelection},
		"PCR -1":          {tpm2.TPMAlgSHA256, []int{-1}, CheckPCRSelection},
		"a PCR twice":     {tpm2.TPMAlgSHA256, []int{3, 3}, checkPCRDuplicate},
		"an unknown bank": {tpm2.TPMAlgSM3256, []int{3}, checkPCRBank},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewPCRSelection(c.bank, c.indexes...)
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
}

// A selection that is asked for is read as strictly as one that was quoted.
func TestSelectionsAskedFor(t *testing.T) {
	sha256 := PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: []byte{0xff, 0, 0}}
	for name, c := range map[string]struct {
		selection []PCRSelection
		want      refusal.Check
	}{
		"none":            {nil, ""},
		"the same":        {[]PCRSelection{sha256}, ""},
		"fewer":           {[]PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0x7f, 0, 0}}}, CheckPCRSelection},
		"an empty list":   {[]PCRSelection{}, CheckPCRSelection},
		"a bank of SHA-1": {[]PCRSelection{{Hash: tpm2.TPMAlgSHA1, Select: []byte{0xff, 0, 0}}}, checkPCRBank},
		"an unknown bank": {[]PCRSelection{{Hash: tpm2.TPMAlgSM3256, Select: []byte{0xff, 0, 0}}}, checkPCRBank},
		"a bank twice":    {[]PCRSelection{sha256, sha256}, CheckPCRSelection},
		"no PCR":          {[]PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: make([]byte, 3)}}, CheckPCRSelection},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodQuoteForgery(t, newForger(t, tpmlab.P256(), schemeECDSA))
			f.options.Selection = c.selection
			f.verify(t, c.want)
		})
	}
}

// As many values as four banks have, and one more; the ends of the indexes.
func TestLimitsOfPCRs(t *testing.T) {
	var all []PCR
	for _, bank := range []tpm2.TPMAlgID{tpm2.TPMAlgSHA1, tpm2.TPMAlgSHA256, tpm2.TPMAlgSHA384, tpm2.TPMAlgSHA512} {
		for i := range 32 {
			all = append(all, PCR{Bank: bank, Index: i, Value: make([]byte, tpmwire.HashOf(bank).Size())})
		}
	}
	sorted, err := SortedPCRs(all)
	if err != nil || len(sorted) != maxPCRs {
		t.Errorf("%d of %d: %v", len(sorted), len(all), err)
	}
	value := make([]byte, 32)
	_, err = SortedPCRs(append(all, PCR{Bank: tpm2.TPMAlgSHA256, Index: 31, Value: value}))
	tpmlab.ExpectCheck(t, err, CheckPCRSelection)
	for index, want := range map[int]refusal.Check{-2: CheckPCRSelection, -1: CheckPCRSelection, 0: "", 31: "", 32: CheckPCRSelection} {
		tpmlab.ExpectCheck(t, PCR{Bank: tpm2.TPMAlgSHA256, Index: index, Value: value}.Check(), want)
	}
	s := PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: []byte{0x80, 0, 0x80}}
	for index, want := range map[int]bool{7: true, 0: false, 8: false, 23: true, 24: false, 31: false} {
		if s.selects(index) != want {
			t.Errorf("PCR %d: %v", index, !want)
		}
	}
	one := PCR{Bank: tpm2.TPMAlgSHA256, Index: 1, Value: value}
	for name, c := range map[string]struct {
		other PCR
		want  bool
	}{
		"itself": {one, true}, "another index": {PCR{tpm2.TPMAlgSHA256, 2, value}, false},
		"another bank": {PCR{tpm2.TPMAlgSHA3256, 1, value}, false}, "another value": {PCR{tpm2.TPMAlgSHA256, 1, filled(32, 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if one.Equal(c.other) != c.want {
				t.Errorf("%s: %v", name, !c.want)
			}
		})
	}
}
