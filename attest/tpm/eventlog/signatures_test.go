package eventlog

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

const (
	listOfRSA2048 = "\xe8\x66\x57\x3c\x9c\x26\x34\x4e\xaa\x14\xed\x77\x6e\x85\xb3\xb6"
	listOfNobody  = "ZZZZZZZZZZZZZZZZ"
	ownerOfTest   = "oooooooooooooooo"
)

// list is an EFI_SIGNATURE_LIST of entries of one size.
func list(kind string, entries ...string) string {
	le, size := binary.LittleEndian, uint32(ownerSize)
	if len(entries) > 0 {
		size += uint32(len(entries[0]))
	}
	b := le.AppendUint32([]byte(kind), 28+uint32(len(entries))*size)
	b = le.AppendUint32(le.AppendUint32(b, 0), size)
	for _, e := range entries {
		b = append(append(b, ownerOfTest...), e...)
	}
	return string(b)
}

// certificates are two in DER; crypto/x509 refuses the second because of its negative serial
// number, which platform keys of some makers have.
func certificates(t testing.TB) (good, negative string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	serial := slices.Repeat([]byte{0x7e}, 16)
	template := &x509.Certificate{SerialNumber: new(big.Int).SetBytes(serial), Subject: pkix.Name{CommonName: "key"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testkit.NoError(t, err)
	negative = string(bytes.Replace(der, serial, append([]byte{0xfe}, serial[1:]...), 1))
	if _, err := x509.ParseCertificate([]byte(negative)); err == nil {
		t.Fatal("crypto/x509 reads a negative serial number")
	}
	return string(der), negative
}

func TestReadSignatures(t *testing.T) {
	good, negative := certificates(t)
	hash := strings.Repeat("h", 32)
	patched := func(at int, v uint32) string {
		b := []byte(list(listOfSHA256, hash))
		binary.LittleEndian.PutUint32(b[at:], v)
		return string(b)
	}
	withHeader := []byte(list(listOfSHA256, hash))
	binary.LittleEndian.PutUint32(withHeader[16:], 28+3+48)
	binary.LittleEndian.PutUint32(withHeader[20:], 3)
	withHeader = slices.Insert(withHeader, 28, 'a', 'b', 'c')
	for name, c := range map[string]struct {
		in                   string
		certificates, hashes int
		unread, ok           bool
	}{
		"nothing":                         {"", 0, 0, false, true},
		"digests":                         {list(listOfSHA256, hash, hash), 0, 2, false, true},
		"a certificate":                   {list(listOfX509, good), 1, 0, false, true},
		"two lists":                       {list(listOfX509, good) + list(listOfSHA256, hash), 1, 1, false, true},
		"a negative serial number":        {list(listOfX509, negative) + list(listOfX509, good), 1, 0, true, true},
		"no certificate":                  {list(listOfX509, "no certificate"), 0, 0, true, true},
		"a digest of another size":        {list(listOfSHA256, hash[1:]), 0, 0, true, true},
		"a key":                           {list(listOfRSA2048, strings.Repeat("n", 256)), 0, 0, true, true},
		"an unknown type":                 {list(listOfNobody, "x") + list(listOfSHA256, hash), 0, 1, true, true},
		"no entries":                      {list(listOfSHA256), 0, 0, false, true},
		"a header":                        {string(withHeader), 0, 1, false, true},
		"a byte":                          {"x", 0, 0, false, false},
		"a byte more":                     {list(listOfSHA256, hash) + "x", 0, 0, false, false},
		"a byte fewer":                    {list(listOfSHA256, hash)[:75], 0, 0, false, false},
		"a list of 27 bytes":              {patched(16, 27), 0, 0, false, false},
		"a longer list":                   {patched(16, 77), 0, 0, false, false},
		"the longest list":                {patched(16, 1<<32-1), 0, 0, false, false},
		"a longer header":                 {patched(20, 49), 0, 0, false, false},
		"the longest header":              {patched(20, 1<<32-1), 0, 0, false, false},
		"entries of 15 bytes":             {patched(24, 15), 0, 0, false, false},
		"entries of no bytes":             {patched(24, 0), 0, 0, false, false},
		"entries that do not fill a list": {patched(24, 47), 0, 0, false, false},
		"entries longer than a list":      {patched(24, 1<<31), 0, 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, ok := readSignatures([]byte(c.in))
			if ok != c.ok || len(s.certificates) != c.certificates || len(s.hashes) != c.hashes || s.unread != c.unread {
				t.Errorf("got %d certificates, %d digests, unread %t, %t", len(s.certificates), len(s.hashes), s.unread, ok)
			}
		})
	}
}

func TestAuthority(t *testing.T) {
	good, negative := certificates(t)
	for in, want := range map[string]bool{ownerOfTest + good: true, good: true, ownerOfTest + negative: false, "": false,
		ownerOfTest: false, ownerOfTest + strings.Repeat("h", 32): false, ownerOfTest + good + "x": false} {
		if got := authority([]byte(in)); (got != nil) != want {
			t.Errorf("%d bytes: got %v", len(in), got)
		}
	}
}

// Whatever the lists are, each entry that is read is in them once.
func FuzzReadSignatures(f *testing.F) {
	good, _ := certificates(f)
	f.Add([]byte(list(listOfX509, good) + list(listOfSHA256, strings.Repeat("h", 32))))
	f.Add([]byte(list(listOfNobody, "x", "y")))
	f.Add([]byte(list(listOfSHA256))[:20])
	f.Fuzz(func(t *testing.T, in []byte) {
		s, ok := readSignatures(in)
		n := 0
		for _, c := range s.certificates {
			n += ownerSize + len(c.Raw)
		}
		for _, h := range s.hashes {
			n += ownerSize + len(h)
		}
		if n > len(in) || !ok && n > 0 {
			t.Errorf("%d of %d bytes, %t", n, len(in), ok)
		}
	})
}
