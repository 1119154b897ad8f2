package tpmkey

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmlab/forger"
	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// rsaOf is an RSA key of these primes.
func rsaOf(t *testing.T, e int64, primes ...*big.Int) *rsa.PrivateKey {
	t.Helper()
	n, phi := big.NewInt(1), big.NewInt(1)
	for _, p := range primes {
		n.Mul(n, p)
		phi.Mul(phi, new(big.Int).Sub(p, big.NewInt(1)))
	}
	d := new(big.Int).ModInverse(big.NewInt(e), phi)
	if d == nil {
		t.Fatal("no private exponent")
	}
	k := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: n, E: int(e)}, D: d, Primes: primes}
	k.Precompute()
	if err := k.Validate(); err != nil {
		t.Fatal(err)
	}
	return k
}

// primeFrom is the first prime from quarters * 2^1022 on whose predecessor has no factor 3.
func primeFrom(quarters int64) *big.Int {
	p := new(big.Int).Add(new(big.Int).Lsh(big.NewInt(quarters), 1022), big.NewInt(1))
	for p.Add(p, big.NewInt(2)); ; p.Add(p, big.NewInt(2)) {
		if new(big.Int).Mod(p, big.NewInt(3)).Int64() == 2 && p.ProbablyPrime(10) {
			return p
		}
	}
}

// A software key that a TPM would not take is refused, each for one reason.
func TestSoftwareKeysOfNoUse(t *testing.T) {
	good := tpmlab.P256()
	ecc := func(change func(*ecdsa.PrivateKey)) *ecdsa.PrivateKey {
		k := *good
		change(&k)
		return &k
	}
	for name, c := range map[string]struct {
		key  *ecdsa.PrivateKey
		good bool
	}{
		"good":       {good, true},
		"none":       {nil, false},
		"no curve":   {ecc(func(k *ecdsa.PrivateKey) { k.Curve = nil }), false},
		"no D":       {ecc(func(k *ecdsa.PrivateKey) { k.D = nil }), false}, //nolint:staticcheck // what is refused
		"no X":       {ecc(func(k *ecdsa.PrivateKey) { k.X = nil }), false},
		"no Y":       {ecc(func(k *ecdsa.PrivateKey) { k.Y = nil }), false},
		"a D of 0":   {ecc(func(k *ecdsa.PrivateKey) { k.D = new(big.Int) }), false},             //nolint:staticcheck // what is refused
		"a large D":  {ecc(func(k *ecdsa.PrivateKey) { k.D = new(big.Int).Lsh(k.D, 8) }), false}, //nolint:staticcheck // what is refused
		"another's":  {ecc(func(k *ecdsa.PrivateKey) { k.PublicKey = tpmlab.P256b().PublicKey }), false},
		"off P-256":  {ecc(func(k *ecdsa.PrivateKey) { k.Y = new(big.Int).Add(k.Y, big.NewInt(1)) }), false},
		"on P-224":   {tpmlab.P224(), false},
		"off by one": {ecc(func(k *ecdsa.PrivateKey) { k.D = new(big.Int).Add(k.D, big.NewInt(1)) }), false}, //nolint:staticcheck // what is refused
	} {
		t.Run("ECDSA, "+name, func(t *testing.T) {
			if k, err := newSoftwareECDSA(c.key); c.good != (err == nil) || c.good != (k != nil) {
				t.Errorf("got %v", err)
			}
		})
	}
	three, err := rsa.GenerateMultiPrimeKey(rand.Reader, 3, 2048) //nolint:staticcheck // what is refused
	if err != nil {
		t.Fatal(err)
	}
	large, err := rsa.GenerateKey(rand.Reader, 4096)
	if err != nil {
		t.Fatal(err)
	}
	short, long := primeFrom(2), primeFrom(4) // of 1024 and 1025 bits, and 2048 together
	short3 := new(big.Int).Add(primeFrom(3), new(big.Int).Lsh(big.NewInt(1), 1000))
	for short3.Add(short3, big.NewInt(1)); new(big.Int).Mod(short3, big.NewInt(3)).Int64() != 2 || !short3.ProbablyPrime(10); {
		short3.Add(short3, big.NewInt(1))
	}
	without := *tpmlab.RSA2048()
	without.Primes = nil
	next := new(big.Int).Set(short) // the second prime of 1024 bits whose predecessor has no factor 3
	for next.Add(next, big.NewInt(2)); new(big.Int).Mod(next, big.NewInt(3)).Int64() != 2 || !next.ProbablyPrime(10); {
		next.Add(next, big.NewInt(2))
	}
	for name, c := range map[string]struct {
		key  *rsa.PrivateKey
		good bool
	}{
		"good":                {tpmlab.RSA2048(), true},
		"of 4096 bits":        {large, true},
		"none":                {nil, false},
		"nothing":             {&rsa.PrivateKey{}, false},
		"of 3072 bits":        {rsaOfPrimes(t, 1536, 1536), true},
		"three primes":        {three, false},
		"a prime of 3 beside": {rsaOf(t, 65537, short, next, big.NewInt(3)), false},
		"no primes":           {&without, false},
		"an exponent of 3":    {rsaOf(t, 3, primeFrom(3), short3), false},
		"a longer second one": {rsaOf(t, 65537, short, long), false},
		"a longer first one":  {rsaOf(t, 65537, long, short), false},
	} {
		t.Run("RSA, "+name, func(t *testing.T) {
			if k, err := newSoftwareRSA(c.key); c.good != (err == nil) || c.good != (k != nil) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// certificateOfSize is a certificate of exactly so many bytes.
func certificateOfSize(t *testing.T, size int) []byte {
	t.Helper()
	for extra := max(0, size-400); ; { // signatures differ in length
		der := tpmlab.CertificateOf(t, extra)
		if len(der) == size {
			return der
		}
		extra = max(0, extra+size-len(der))
	}
}

func TestSizesOfNVCertificates(t *testing.T) {
	if err := checkNVCertificate(certificateOfSize(t, maxNVCertificateSize)); err != nil {
		t.Errorf("the largest: %v", err)
	}
	if err := checkNVCertificate(certificateOfSize(t, maxNVCertificateSize+1)); err == nil {
		t.Error("one byte more is accepted")
	}
	for name, c := range map[string]struct {
		content []byte
		want    error
	}{
		"nothing":               {nil, nil},
		"one byte of an end":    {[]byte{0xff}, ErrNVCertificateIncomplete},
		"an end":                {bytes.Repeat([]byte{0xff}, 256), ErrNVCertificateIncomplete},
		"a list of nothing":     {[]byte{0x30, 0}, nil},
		"a list and an end":     {append([]byte{0x30, 3, 2, 1, 7}, bytes.Repeat([]byte{0xff}, 251)...), nil},
		"one byte that is zero": {[]byte{0}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			der, err := ReadNVCertificate(t.Context(), tpmlab.FakeNV{ownIndex: c.content}, ownIndex)
			if err == nil || der != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %x, %v", name, der, err)
			}
		})
	}
}

// indexMax has the TPM say that an index can hold so many bytes.
func indexMax(tpm *tpmsim.TPM, size int) *tpmlab.Altered {
	return &tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCGetCapability, Alter: func(b []byte) {
		if len(b) >= 27 && binary.BigEndian.Uint32(b[19:]) == uint32(tpm2.TPMPTNVIndexMax) {
			binary.BigEndian.PutUint32(b[23:], uint32(size))
		}
	}}
}

// What stands in the way of writing a certificate is found before anything is written,
// and what could not be written in one command is left as it is.
func TestNVCertificateWritesNothing(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	der := tpmlab.CertificateOf(t, 10)
	size := (len(der) + nvCertificateUnit - 1) / nvCertificateUnit * nvCertificateUnit
	write := func(over *tpmsim.FaultyTPM, der []byte, password []byte) error {
		return WriteNVCertificate(t.Context(), over, ownIndex, der, NVCertificateOptions{OwnerPassword: hidden(password)})
	}
	remove := func() {
		if err := RemoveNVCertificate(t.Context(), tpm, ownIndex, NVCertificateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		tpm  *tpmsim.FaultyTPM
		want error
	}{
		"the TPM's chunk is not known":   {tpmsim.Faulty(tpm, tpmsim.FailAt(2, nil)), tpmsim.ErrInjected},
		"the TPM's limit is not known":   {tpmsim.Faulty(tpm, tpmsim.FailAt(3, nil)), tpmsim.ErrInjected},
		"an index takes a byte too few":  {tpmsim.Faulty(indexMax(tpm, size-1), nil), nil},
		"the index takes it":             {tpmsim.Faulty(indexMax(tpm, size), nil), nil},
		"the index takes more":           {tpmsim.Faulty(indexMax(tpm, size+1), nil), nil},
		"a password that no TPM takes":   {tpmsim.Faulty(tpm, nil), tpmop.ErrNullInPassword},
		"the index cannot be made":       {tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCNVDefineSpace, tpm2.TPMRCFailure)), tpm2.TPMRCFailure},
		"the index cannot be written to": {tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCNVWrite, tpm2.TPMRCFailure)), tpm2.TPMRCFailure},
	} {
		t.Run(name, func(t *testing.T) {
			var password []byte
			if errors.Is(c.want, tpmop.ErrNullInPassword) {
				password = badPassword
			}
			err := write(c.tpm, der, password)
			good := strings.HasPrefix(name, "the index takes")
			if good != (err == nil) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			switch made := tpmlab.Count(c.tpm, tpm2.TPMCCNVDefineSpace); {
			case good || strings.HasSuffix(name, "written to"):
				if made != 1 || tpmlab.Count(c.tpm, tpm2.TPMCCNVUndefineSpace) != 0 {
					t.Errorf("sent %v", c.tpm.Commands())
				}
				remove()
			case strings.HasSuffix(name, "made"):
			case made != 0:
				t.Errorf("sent %v", c.tpm.Commands())
			}
		})
	}
	t.Run("exactly one command", func(t *testing.T) {
		chunk, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (int, error) { return tpmop.NVChunk(ctx, h) })
		if err != nil {
			t.Fatal(err)
		}
		faulty := tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCNVWrite, tpm2.TPMRCFailure))
		if err := write(faulty, tpmlab.CertificateOf(t, chunk-nvCertificateUnit/2-len(der)+10), nil); !errors.Is(err, tpm2.TPMRCFailure) ||
			tpmlab.Count(faulty, tpm2.TPMCCNVWrite) != 1 || tpmlab.Count(faulty, tpm2.TPMCCNVUndefineSpace) != 0 {
			t.Errorf("%v after %v", err, faulty.Commands())
		}
		remove()
	})
	if err := write(tpmsim.Faulty(tpm, nil), der, nil); err != nil {
		t.Fatal(err)
	}
	checkNVCertificateIs(t, tpm, der)
	t.Run("in place, with a password that no TPM takes", func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, nil)
		if err := write(faulty, tpmlab.CertificateOf(t, 11), badPassword); !errors.Is(err, tpmop.ErrNullInPassword) || tpmlab.Count(faulty, tpm2.TPMCCNVWrite) != 0 {
			t.Errorf("%v after %v", err, faulty.Commands())
		}
	})
	t.Run("removed, with a password that no TPM takes", func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, nil)
		err := RemoveNVCertificate(t.Context(), faulty, ownIndex, NVCertificateOptions{OwnerPassword: hidden(badPassword)})
		if !errors.Is(err, tpmop.ErrNullInPassword) || tpmlab.Count(faulty, tpm2.TPMCCNVUndefineSpace) != 0 {
			t.Errorf("%v after %v", err, faulty.Commands())
		}
	})
	t.Run("removed, where its area cannot be read again", func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, tpmsim.FailAt(2, nil))
		err := RemoveNVCertificate(t.Context(), faulty, ownIndex, NVCertificateOptions{})
		if !errors.Is(err, tpmsim.ErrInjected) || tpmlab.Count(faulty, tpm2.TPMCCNVUndefineSpace) != 0 {
			t.Errorf("%v after %v", err, faulty.Commands())
		}
	})
	t.Run("a larger one, where the old one stays", func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCNVUndefineSpace, tpm2.TPMRCFailure))
		if err := write(faulty, tpmlab.CertificateOf(t, 600), nil); !errors.Is(err, tpm2.TPMRCFailure) || tpmlab.Count(faulty, tpm2.TPMCCNVDefineSpace) != 0 {
			t.Errorf("%v after %v", err, faulty.Commands())
		}
	})
	checkNVCertificateIs(t, tpm, der)
	for name, alter := range map[string]func([]byte){
		"an area that ends": func(b []byte) { b[23] = 0xff }, "another index": func(b []byte) { b[15] ^= 1 }, "other attributes": func(b []byte) { b[19] ^= 0x80 },
		"another size": func(b []byte) { b[25] ^= 7 },
	} {
		t.Run(name, func(t *testing.T) {
			faulty := tpmsim.Faulty(&tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCNVReadPublic, Alter: alter}, nil)
			if err := write(faulty, tpmlab.CertificateOf(t, 12), nil); err == nil || tpmlab.Count(faulty, tpm2.TPMCCNVWrite) != 0 {
				t.Errorf("%v after %v", err, faulty.Commands())
			}
		})
	}
	checkNVCertificateIs(t, tpm, der)
	remove()
	for name, c := range map[string]struct {
		attributes tpm2.TPMANV
		size       int
	}{
		"other attributes, its size": {tpm2.TPMANV{OwnerWrite: true, OwnerRead: true, AuthRead: true, NT: tpm2.TPMNTOrdinary}, nvCertificateUnit},
		"its attributes, a size":     {nvCertificateAttributes(), nvCertificateUnit - 1},
	} {
		t.Run(name, func(t *testing.T) {
			tpmlab.DefineNV(t, tpm, ownIndex, c.attributes, c.size, nil)
			if err := WriteNVCertificate(t.Context(), tpm, ownIndex, der, NVCertificateOptions{}); !errors.Is(err, errNVIndexTaken) {
				t.Errorf("got %v", err)
			}
			if err := tpm.DeleteNV(ownIndex); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A TPM key that cannot be made or used is refused before the TPM is asked.
func TestTPMKeysSendNothing(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	k := mustTPMKey(t, tpm, ECDSAP256)
	sum := make([]byte, 32)
	faulty := tpmsim.Faulty(tpm, nil)
	loaded, err := Load(t.Context(), faulty, k.File(), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func() error{
		"no kind of key":     func() error { _, err := Create(t.Context(), faulty, 0, Options{}); return err },
		"a kind of key more": func() error { _, err := Create(t.Context(), faulty, RSA3072+1, Options{}); return err },
		"a longer password": func() error {
			_, err := Create(t.Context(), faulty, ECDSAP256, Options{Password: hidden(bytes.Repeat([]byte{'p'}, maxKeyPassword+1))})
			return err
		},
		"a password that no TPM takes": func() error {
			_, err := Create(t.Context(), faulty, ECDSAP256, Options{Password: hidden(badPassword)})
			return err
		},
		"a parent that is not persistent": func() error {
			_, err := Create(t.Context(), faulty, ECDSAP256, Options{Parent: 0x80000000})
			return err
		},
		"PCRs of no TPM": func() error {
			_, err := Create(t.Context(), faulty, ECDSAP256, Options{PCRs: []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 0, 0, 0, 0}}}})
			return err
		},
		"a cut digest":    func() error { _, err := loaded.Sign(nil, sum[1:], crypto.SHA256); return err },
		"a longer digest": func() error { _, err := loaded.Sign(nil, append(sum, 0), crypto.SHA256); return err },
		"no options":      func() error { _, err := loaded.Sign(nil, sum, nil); return err },
		"no hash":         func() error { _, err := loaded.Sign(nil, sum, crypto.Hash(0)); return err },
		"SHA-1":           func() error { _, err := loaded.Sign(nil, sum[:20], crypto.SHA1); return err },
		"PSS":             func() error { _, err := loaded.Sign(nil, sum, &rsa.PSSOptions{Hash: crypto.SHA256}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			faulty.SetFaults(nil)
			if err := run(); err == nil || faulty.Count() != 0 {
				t.Errorf("%v after %v", err, faulty.Commands())
			}
		})
	}
	if _, err := (&Key{}).signScheme(nil, crypto.Hash(0)); err == nil || !strings.Contains(err.Error(), "digests only") {
		t.Errorf("no hash: %v", err)
	}
	if RSA3072.String() != "RSA-3072" {
		t.Errorf("%v", RSA3072)
	}
}

// A TPM that asks for another try gets three, and one whose answer does not fit is not
// asked for more.
func TestTPMKeysOfBrokenTPMs(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	file := mustTPMKey(t, tpm, ECDSAP256).File()
	sum := make([]byte, 32)
	faulty := tpmsim.Faulty(tpm, nil)
	k, err := Load(t.Context(), faulty, file, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	faulty.SetFaults(tpmsim.FailEvery(tpm2.TPMCCSign, tpm2.TPMRCRetry))
	if _, err := k.Sign(nil, sum, crypto.SHA256); !errors.Is(err, tpm2.TPMRCRetry) || tpmlab.Count(faulty, tpm2.TPMCCSign) != tpmop.MaxTries {
		t.Errorf("%v after %d tries", err, tpmlab.Count(faulty, tpm2.TPMCCSign))
	}
	// Without sign the key has another use, and the file is refused.
	unsigning := tpmsim.Faulty(&tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCCreate, Alter: func(b []byte) {
		area := 18 + int(binary.BigEndian.Uint16(b[14:]))
		b[area+5] ^= byte(statement.AttributeSign >> 16)
	}}, nil)
	if _, err := Create(t.Context(), unsigning, ECDSAP256, Options{}); err == nil || tpmlab.Count(unsigning, tpm2.TPMCCLoad) != 0 {
		t.Errorf("a key that does not sign: %v after %v", err, unsigning.Commands())
	}
	if _, err := Load(t.Context(), &tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCLoad, Alter: func(b []byte) { b[25] ^= 1 }}, file, LoadOptions{}); err == nil {
		t.Error("another Name is accepted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	late := tpmsim.Faulty(tpm, tpmsim.Every(tpm2.TPMCCLoad, tpmsim.Fault{Before: cancel}))
	if k, err := Load(ctx, late, file, LoadOptions{}); !errors.Is(err, context.Canceled) || k != nil || tpmlab.Count(late, tpm2.TPMCCContextSave) != 0 {
		t.Errorf("cancelled: %v after %v", err, late.Commands())
	}
	tpmlab.CheckNothingLoaded(t, tpm)

	held := tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCContextSave, tpm2.TPMRCCommandCode))
	if k, err = Load(t.Context(), held, file, LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	held.SetFaults(tpmsim.FailEvery(tpm2.TPMCCFlushContext, tpm2.TPMRCFailure))
	if err := k.Close(); err == nil {
		t.Error("closed with the key in the TPM")
	}
	held.SetFaults(nil)
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
	if _, err := do(t, noPCRs{}, func(ctx context.Context, h *tpmop.Handles) (keyPolicyStep, error) {
		return presentPCRs(ctx, h, []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA512, Select: []byte{1, 0, 0}}}, tpm2.TPMAlgSHA256)
	}); err == nil {
		t.Error("a value of a bank that the TPM has not")
	}
}

// noPCRs is a TPM that gives no value, whatever it is asked for.
type noPCRs struct{}

func (noPCRs) Send([]byte) ([]byte, error) {
	return append([]byte{0x80, 1, 0, 0, 0, 22}, make([]byte, 16)...), nil
}

func TestWordsOfKeyRefusals(t *testing.T) {
	for rc, want := range map[tpm2.TPMRC]error{
		tpm2.TPMRCBadAuth: ErrPassword, tpm2.TPMRCAuthFail: ErrPassword, tpm2.TPMRCPCRChanged: ErrPCRPolicy, tpm2.TPMRCPolicyFail: ErrPCRPolicy, tpm2.TPMRCFailure: nil,
	} {
		err := explainKeyRefusal(rc)
		if !errors.Is(err, rc) || want != nil && !errors.Is(err, want) || want == nil && err != rc { //nolint:errorlint // the very error
			t.Errorf("%v: got %v, want %v", rc, err, want)
		}
	}
	ecdsaOnly := tpm2.NewTPMUSignature(tpm2.TPMAlgECDSA, &tpm2.TPMSSignatureECC{Hash: tpm2.TPMAlgSHA256})
	rsaOnly := tpm2.NewTPMUSignature(tpm2.TPMAlgRSASSA, &tpm2.TPMSSignatureRSA{Hash: tpm2.TPMAlgSHA256})
	for name, s := range map[string]tpm2.TPMTSignature{
		"ECDSA that is RSA": {SigAlg: tpm2.TPMAlgECDSA, Signature: rsaOnly}, "RSASSA that is ECDSA": {SigAlg: tpm2.TPMAlgRSASSA, Signature: ecdsaOnly},
		"RSAPSS that is ECDSA": {SigAlg: tpm2.TPMAlgRSAPSS, Signature: ecdsaOnly}, "HMAC": {SigAlg: tpm2.TPMAlgHMAC, Signature: rsaOnly},
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := signatureBytes(&s); err == nil || b != nil {
				t.Errorf("%s: %x, %v", name, b, err)
			}
		})
	}
}

// A policy is read with 1 to 16 banks of 1 to 4 octets, and made of the same.
func TestLimitsOfKeyPolicies(t *testing.T) {
	pcr := func(banks, octets int) keyPolicyStep {
		s := keyPolicyStep{digest: make([]byte, 32)}
		for range banks {
			s.selections = append(s.selections, statement.PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: make([]byte, octets)})
		}
		if s.selections == nil {
			s.selections = []statement.PCRSelection{}
		}
		return s
	}
	for name, c := range map[string]struct {
		step keyPolicyStep
		good bool
	}{
		"one bank": {pcr(1, 3), true}, "16 banks": {pcr(16, 3), true}, "17 banks": {pcr(17, 3), false}, "no bank": {pcr(0, 3), false},
		"no octet": {pcr(1, 0), false}, "4 octets": {pcr(1, 4), true}, "5 octets": {pcr(1, 5), false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseKeyPolicy(keyPolicy{c.step}.statements()); c.good != (err == nil) {
				t.Errorf("got %v", err)
			}
		})
	}
	one := keyPolicy{pcr(1, 3)}
	if d, err := one.digest(tpm2.TPMAlgSM3256); err == nil {
		t.Errorf("digest under another hash: %x", d)
	}
	if err := one.check(&statement.Public{NameAlg: tpm2.TPMAlgSM3256}); err == nil {
		t.Error("the policy of a key under another hash")
	}
	tpm := tpmsim.Faulty(tpmlab.NewTPM(t), nil)
	selections := func(n, octets int) []statement.PCRSelection {
		all := make([]statement.PCRSelection, n)
		for i := range all {
			all[i] = statement.PCRSelection{Hash: tpm2.TPMAlgSHA256, Select: append([]byte{1}, make([]byte, octets-1)...)}
		}
		return all
	}
	for name, c := range map[string]struct {
		selections []statement.PCRSelection
		good       bool
	}{
		"one": {selections(1, 3), true}, "4 octets": {selections(1, 4), true}, "5 octets": {selections(1, 5), false}, "6 octets": {selections(1, 6), false},
		"16 of them": {selections(16, 3), true}, "17 of them": {selections(17, 3), false}, "no PCR": {[]statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: make([]byte, 3)}}, false},
	} {
		t.Run("present, "+name, func(t *testing.T) {
			_, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (keyPolicyStep, error) {
				return presentPCRs(ctx, h, c.selections, tpm2.TPMAlgSHA256)
			})
			if c.good != (err == nil) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Sessions with a password that no TPM takes are not started; a session key that comes
// too late is not kept.
func TestSessionsSendNothing(t *testing.T) {
	for password, want := range map[string]string{"\x00a": "", "a\x00b": "", "a": "a", "a\x00": "a", "\x00": "", "": ""} {
		t.Run(password, func(t *testing.T) {
			got, err := tpmop.AuthValue([]byte(password))
			if bad := len(password) == 2 && password[0] == 0 || len(password) == 3; bad != (err != nil) || string(got) != want {
				t.Errorf("%q: %q, %v", password, got, err)
			}
		})
	}
	tpm := tpmlab.NewTPM(t)
	faulty := tpmsim.Faulty(tpm, nil)
	for name, run := range map[string]func(ctx context.Context, h *tpmop.Handles) (tpm2.Session, error){
		"HMAC": func(ctx context.Context, h *tpmop.Handles) (tpm2.Session, error) { return h.Session(ctx, badPassword) },
		"policy": func(ctx context.Context, h *tpmop.Handles) (tpm2.Session, error) {
			return h.PolicySession(ctx, tpm2.TPMAlgSHA256, badPassword, nil)
		},
	} {
		faulty.SetFaults(nil)
		if _, err := do(t, faulty, run); !errors.Is(err, tpmop.ErrNullInPassword) || faulty.Count() != 0 {
			t.Errorf("%s: %v after %v", name, err, faulty.Commands())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	faulty.SetFaults(tpmsim.At(1, tpmsim.Fault{Before: cancel}))
	err := tpmop.Share(faulty).Do(ctx, func(h *tpmop.Handles) error {
		_, err := h.Session(ctx, []byte("password"))
		return err
	})
	if !errors.Is(err, context.Canceled) || tpmlab.Count(faulty, tpm2.TPMCCContextSave) != 0 {
		t.Errorf("cancelled: %v after %v", err, faulty.Commands())
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// What is wrong with a key file is said of the part that it is wrong in.
func TestPartsOfTPMKeyFiles(t *testing.T) {
	public := forger.PublicArea(t, tpmlab.P256().Public(), forger.ResidentAttributes, forger.NoScheme).Raw
	sized := func(b []byte) []byte { return append([]byte{byte(len(b) >> 8), byte(len(b))}, b...) }
	keyType := tpmlab.Element(asn1.OBJECT_IDENTIFIER, []byte{0x67, 0x81, 0x05, 0x0a, 0x01, 0x03})
	parent := tpmlab.Element(asn1.INTEGER, []byte{0x40, 0, 0, 1})
	pub, priv := tpmlab.Octets(sized(public)), tpmlab.Octets(sized([]byte{1}))
	file := func(parts ...[]byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: tpmKeyFileBlock, Bytes: tpmlab.Seq(parts...)})
	}
	explicit := func(tag asn1.Tag, parts ...[]byte) []byte { return tpmlab.Element(tag, bytes.Join(parts, nil)) }
	policy := func(statements ...[]byte) []byte {
		return file(keyType, explicit(tagTPMKeyPolicy, tpmlab.Seq(statements...)), parent, pub, priv)
	}
	number, null := tpmlab.Element(asn1.INTEGER, []byte{1}), []byte{5, 0}
	statement := func(code, body []byte) []byte { return tpmlab.Seq(code, body) }
	code, body := explicit(tagTPMKeyEmptyAuth, number), explicit(tagTPMKeyPolicy, tpmlab.Octets(nil))
	var nine [][]byte
	for range maxTPMKeyPolicy + 1 {
		nine = append(nine, statement(explicit(tagTPMKeyEmptyAuth, tpmlab.Element(asn1.INTEGER, []byte{1, 0x6b})), body))
	}
	const tail, badStatement = "it does not end with pubkey and privkey", "statement 1 is not a TPMPolicy"
	for name, c := range map[string]struct {
		in  []byte
		bad string
	}{
		"good":                          {file(keyType, parent, pub, priv), ""},
		"the largest":                   {make([]byte, maxFileSize), "no PEM block"},
		"one byte more":                 {make([]byte, maxFileSize+1), "it has 16385 bytes"},
		"something after":               {append(file(keyType, parent, pub, priv), "#\n"...), "there is text"},
		"no list":                       {pem.EncodeToMemory(&pem.Block{Type: tpmKeyFileBlock, Bytes: null}), "it is not one DER SEQUENCE"},
		"no private part":               {file(keyType, parent, pub), tail},
		"no part":                       {file(keyType, parent), tail},
		"a public part of no octets":    {file(keyType, parent, null, priv), tail},
		"a third part":                  {file(keyType, parent, pub, priv, priv), tail},
		"an empty public part":          {file(keyType, parent, tpmlab.Octets(nil), priv), "pubkey is not a TPM2B_PUBLIC"},
		"a public part without a size":  {file(keyType, parent, tpmlab.Octets(public), priv), "pubkey is not a TPM2B_PUBLIC"},
		"an empty private part":         {file(keyType, parent, pub, tpmlab.Octets(nil)), "privkey is not a TPM2B_PRIVATE"},
		"a private part of one byte":    {file(keyType, parent, pub, tpmlab.Octets([]byte{1})), "privkey is not a TPM2B_PRIVATE"},
		"emptyAuth that ends":           {file(keyType, []byte{byte(tagTPMKeyEmptyAuth), 100}), "emptyAuth is not a BOOLEAN"},
		"a description that ends":       {file(keyType, []byte{byte(tagTPMKeyDescription), 100}), "description is not a UTF8String"},
		"a policy that ends":            {file(keyType, []byte{byte(tagTPMKeyPolicy), 100}), "policy is not a SEQUENCE"},
		"a policy of no list":           {file(keyType, explicit(tagTPMKeyPolicy, null), parent, pub, priv), "policy is not a SEQUENCE"},
		"an empty policy":               {policy(), "policy is not a SEQUENCE"},
		"a statement of no list":        {policy(null), badStatement},
		"a statement of nothing":        {policy(tpmlab.Seq()), badStatement},
		"a statement without a code":    {policy(tpmlab.Seq(body)), badStatement},
		"a statement's code of no form": {policy(statement(explicit(tagTPMKeyEmptyAuth, null), body)), badStatement},
		"a statement without a body":    {policy(tpmlab.Seq(code)), badStatement},
		"a statement's body of no form": {policy(statement(code, explicit(tagTPMKeyPolicy, null))), badStatement},
		"a ninth statement":             {policy(nine...), "policy: more than 8 statements"},
		"eight statements":              {policy(nine[1:]...), "its commands have the digest"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseFile(c.in)
			if c.bad == "" && err != nil || c.bad != "" && (!errors.Is(err, checkFile) || !strings.Contains(err.Error(), c.bad)) {
				t.Errorf("got %v, want %s", err, c.bad)
			}
		})
	}
	if _, err := (&File{Parent: tpm2.TPMRHOwner, Public: make([]byte, 1<<16), Private: []byte{1}}).Marshal(); !errors.Is(err, checkFile) {
		t.Errorf("over its size prefix: %v", err)
	}
}
