package tpmkey

import (
	"bytes"
	"cmp"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkFile: a TPM key file is not one that this package reads.
const checkFile refusal.Check = "tpm-key-file"

const (
	maxFileSize = 16 << 10 // bytes of PEM

	tpmKeyFileBlock = "TSS2 PRIVATE KEY"

	maxTPMKeyPolicy      = 8    // statements
	maxTPMKeyDescription = 1024 // bytes
)

// tpmLoadableKey is id-loadablekey, 2.23.133.10.1.3.
const tpmLoadableKey oid.OID = "\x67\x81\x05\x0a\x01\x03"

// The explicit tags of TPMKey and TPMPolicy.
const (
	tagTPMKeyEmptyAuth   asn1.Tag = 0xa0
	tagTPMKeyPolicy      asn1.Tag = 0xa1
	tagTPMKeySecret      asn1.Tag = 0xa2
	tagTPMKeyAuthPolicy  asn1.Tag = 0xa3
	tagTPMKeyDescription asn1.Tag = 0xa4
	tagTPMKeyRSAParent   asn1.Tag = 0xa5
)

// File is a key that only the TPM that made it can load: its public part and its private part
// as the TPM encrypted it. It survives the end of the process and loss of power, until
// TPM2_Clear. The file is that of "ASN.1 Specification for TPM 2.0 Key Files"
// (draft-bottomley-tpm2-keys), which OpenSSL's tpm2 provider, openssl_tpm2_engine and
// tpm2_encodeobject write and read:
//
//	TPMKey ::= SEQUENCE {
//	  type        OBJECT IDENTIFIER,                      -- 2.23.133.10.1.3, loadable
//	  emptyAuth   [0] EXPLICIT BOOLEAN OPTIONAL,
//	  policy      [1] EXPLICIT SEQUENCE OF TPMPolicy OPTIONAL,
//	  description [4] EXPLICIT UTF8String OPTIONAL,
//	  parent      INTEGER,
//	  pubkey      OCTET STRING,                           -- TPM2B_PUBLIC
//	  privkey     OCTET STRING }                          -- TPM2B_PRIVATE
//	TPMPolicy ::= SEQUENCE {
//	  commandCode   [0] EXPLICIT INTEGER,
//	  commandPolicy [1] EXPLICIT OCTET STRING }
//
// Importable and sealed keys, and keys with alternative policies or a temporary RSA parent,
// are refused. No field is a secret to anyone without the TPM; anyone who has both has the
// key, except for its password.
type File struct {
	// EmptyAuth says that the key has no password. It is a hint for programs that ask for one;
	// tpm2_encodeobject 5.4 writes its opposite, so loading ignores it.
	EmptyAuth bool
	// Policy holds the policy commands, in order, that allow the key's use; nil for a key that
	// has no policy.
	Policy []PolicyCommand
	// Description is for human readers, at most 1024 bytes of UTF-8; empty for none.
	Description string
	// Parent is the persistent handle of the parent, 0x81000000 to 0x81ffffff, or
	// tpm2.TPMRHOwner for the P-256 storage key that every program makes identically.
	Parent tpm2.TPMHandle
	// Public is the key's TPMT_PUBLIC, without a size prefix.
	Public []byte
	// Private is the encrypted private part, the content of a TPM2B_PRIVATE: 1 to
	// 4096 bytes.
	Private []byte

	// How a parsed file states EmptyAuth, if not as Marshal does it: TRUE as ff, FALSE as 00. The
	// draft prefers FALSE to be left out, but tpm2-openssl 1.1.1 takes that for TRUE.
	emptyAuthOne    bool // TRUE as 01, which is not DER: OpenSSL's way
	emptyAuthAbsent bool // FALSE
}

// PolicyCommand is one policy command, a TPMPolicy.
type PolicyCommand struct {
	// Command is the command's code, such as tpm2.TPMCCPolicyPCR.
	Command tpm2.TPMCC
	// Body holds the command's parameters after the session handle, as the TPM takes them;
	// empty for a command without parameters. At most 1024 bytes.
	Body []byte
}

// ParseFile reads one PEM block of at most 16 KiB and nothing around it. It is strict: each value has one
// encoding, which Marshal reproduces, except that emptyAuth is accepted in each of the ways in
// which programs write it. A refusal has
// the check "tpm-key-file".
func ParseFile(b []byte) (*File, error) {
	f, err := parseFile(b)
	if err != nil {
		return nil, fmt.Errorf("tpmkey: %w: %w", checkFile, err)
	}
	return f, nil
}

// WriteFile stores the key in a file of mode 0600, replacing any that was there. A reader,
// even one after a loss of power, finds either the old file or the new one, whole. The
// directory must exist. It returns the errors of [File.Marshal] and of the file system.
func (f *File) WriteFile(path string) error {
	b, err := f.Marshal()
	if err != nil {
		return err
	}
	if err := safefile.Replace(path, safefile.Content(b)); err != nil {
		return fmt.Errorf("tpmkey: %w", err)
	}
	return nil
}

// ReadFile reads a file that [File.WriteFile] wrote. On Unix it must belong to this user, have
// mode 0600, and not be a symbolic link. A refusal has the check
// "tpm-key-file"; other errors are the file system's:
// errors.Is finds [io/fs.ErrNotExist].
func ReadFile(path string) (*File, error) {
	b, err := safefile.Read(path, maxFileSize, safefile.Private)
	if err != nil {
		return nil, fmt.Errorf("tpmkey: %w", safefile.Refused(checkFile, err))
	}
	return ParseFile(b)
}

func parseFile(b []byte) (*File, error) {
	if len(b) > maxFileSize {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", len(b), maxFileSize)
	}
	block, rest := pem.Decode(b)
	if block == nil || block.Type != tpmKeyFileBlock {
		return nil, fmt.Errorf("no PEM block %q", tpmKeyFileBlock)
	}
	if len(block.Headers) != 0 || !bytes.Equal(pem.EncodeToMemory(block), b) {
		return nil, errors.New("it is not one PEM block in canonical form with nothing around it: " + whyNotCanonical(b, block, rest))
	}
	in, body := cryptobyte.String(block.Bytes), cryptobyte.String(nil)
	if !in.ReadASN1(&body, asn1.SEQUENCE) || !in.Empty() {
		return nil, errors.New("it is not one DER SEQUENCE")
	}
	f := &File{}
	if err := f.readOptional(&body); err != nil {
		return nil, err
	}
	var public, private cryptobyte.String
	switch {
	case !body.ReadASN1Integer((*uint32)(&f.Parent)):
		return nil, errors.New("parent is not an INTEGER of 32 bits without sign")
	case !body.ReadASN1(&public, asn1.OCTET_STRING) || !body.ReadASN1(&private, asn1.OCTET_STRING) || !body.Empty():
		return nil, errors.New("it does not end with pubkey and privkey, two OCTET STRINGs")
	case !tpmwire.ReadTPM2B(&public, &f.Public, tpmwire.MaxTPMTPublicSize) || !public.Empty():
		return nil, errors.New("pubkey is not a TPM2B_PUBLIC")
	case !tpmwire.ReadTPM2B(&private, &f.Private, tpmop.MaxPrivateSize) || !private.Empty():
		return nil, errors.New("privkey is not a TPM2B_PRIVATE")
	}
	return f, f.check()
}

// whyNotCanonical returns the fault of a PEM file with one block.
func whyNotCanonical(b []byte, block *pem.Block, rest []byte) string {
	begin := []byte("-----BEGIN ")
	front, after := !bytes.HasPrefix(b, begin), len(rest) != 0
	for _, c := range []struct {
		found bool
		what  string
	}{
		{bytes.ContainsRune(b, '\r'), "its lines end with CR LF, want LF"},
		{front && bytes.TrimLeft(b, " \t\n")[0] == '-', "there are blanks or empty lines in front of it"},
		{front, "there is text in front of it"},
		{len(block.Headers) != 0, "it has PEM headers"},
		{bytes.HasPrefix(rest, begin), "there is another block after it"},
		{after && len(bytes.TrimSpace(rest)) == 0, "there are blanks or empty lines after it"},
		{after, "there is text after it"},
		{!bytes.HasSuffix(b, []byte("\n")), "its last line has no line feed at the end"},
		{bytes.Contains(b, []byte("\n\n")), "there is an empty line in it"},
	} {
		if c.found {
			return c.what
		}
	}
	return "its base64 is not in lines of 64 characters, or has other bits after its end"
}

// readExplicit reads a value of one type under an explicit tag.
func readExplicit(s *cryptobyte.String, outer, inner asn1.Tag, out *cryptobyte.String) bool {
	var v cryptobyte.String
	return s.ReadASN1(&v, outer) && v.ReadASN1(out, inner) && v.Empty()
}

// readOptional reads type to rsaParent.
func (f *File) readOptional(s *cryptobyte.String) error {
	var keyType oid.OID
	if !oid.Read(s, &keyType) {
		return errors.New("type is not an OBJECT IDENTIFIER")
	}
	if keyType != tpmLoadableKey {
		return fmt.Errorf("type: got %v, want %v, a loadable key", keyType, tpmLoadableKey)
	}
	var v cryptobyte.String
	if f.emptyAuthAbsent = !s.PeekASN1Tag(tagTPMKeyEmptyAuth); !f.emptyAuthAbsent {
		if !readExplicit(s, tagTPMKeyEmptyAuth, asn1.BOOLEAN, &v) || len(v) != 1 || v[0] > 0x01 && v[0] < 0xff {
			return errors.New("emptyAuth is not a BOOLEAN")
		}
		f.EmptyAuth, f.emptyAuthOne = v[0] != 0x00, v[0] == 0x01
	}
	if s.PeekASN1Tag(tagTPMKeyPolicy) {
		if err := f.readPolicy(s); err != nil {
			return err
		}
	}
	if s.PeekASN1Tag(tagTPMKeyDescription) {
		if !readExplicit(s, tagTPMKeyDescription, asn1.UTF8String, &v) || len(v) == 0 {
			return errors.New("description is not a UTF8String of some length")
		}
		f.Description = string(v)
	}
	switch {
	case s.PeekASN1Tag(tagTPMKeySecret):
		return errors.New("it has a secret, which only importable keys have")
	case s.PeekASN1Tag(tagTPMKeyAuthPolicy):
		return errors.New("it has an authPolicy: alternative policies are not supported")
	case s.PeekASN1Tag(tagTPMKeyRSAParent):
		return errors.New("it has an rsaParent, which is not supported")
	}
	return nil
}

func (f *File) readPolicy(s *cryptobyte.String) error {
	var list cryptobyte.String
	if !readExplicit(s, tagTPMKeyPolicy, asn1.SEQUENCE, &list) || list.Empty() {
		return errors.New("policy is not a SEQUENCE with one or more statements")
	}
	for !list.Empty() {
		var one, code, octets cryptobyte.String
		var command uint32
		if !list.ReadASN1(&one, asn1.SEQUENCE) ||
			!one.ReadASN1(&code, tagTPMKeyEmptyAuth) || !code.ReadASN1Integer(&command) || !code.Empty() ||
			!readExplicit(&one, tagTPMKeyPolicy, asn1.OCTET_STRING, &octets) || !one.Empty() {
			return fmt.Errorf("policy: statement %d is not a TPMPolicy", len(f.Policy)+1)
		}
		f.Policy = append(f.Policy, PolicyCommand{Command: tpm2.TPMCC(command), Body: octets})
	}
	return nil
}

// check refuses what Load could not use.
func (f *File) check() error {
	if err := tpmop.CheckStorageParent(f.Parent); err != nil {
		return err
	}
	switch {
	case len(f.Private) == 0 || len(f.Private) > tpmop.MaxPrivateSize:
		return fmt.Errorf("privkey: %d bytes, want 1 to %d", len(f.Private), tpmop.MaxPrivateSize)
	case len(f.Description) > maxTPMKeyDescription || !utf8.ValidString(f.Description):
		return fmt.Errorf("description: not UTF-8 of at most %d bytes", maxTPMKeyDescription)
	case len(f.Policy) > maxTPMKeyPolicy:
		return fmt.Errorf("policy: more than %d statements", maxTPMKeyPolicy)
	}
	public, err := statement.ParsePublic(f.Public)
	if err == nil {
		_, err = public.Key()
	}
	if err != nil {
		return fmt.Errorf("pubkey: %w", err)
	}
	if !public.Attributes.Has(statement.AttributeSign) || public.Attributes.HasAny(statement.AttributeRestricted|statement.AttributeX509Sign) {
		return fmt.Errorf("pubkey: attributes %v are not those of a key that signs digests", public.Attributes)
	}
	policy, err := parseKeyPolicy(f.Policy)
	if err == nil {
		err = policy.check(public)
	}
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	return nil
}

func (f *File) clone() *File {
	c := *f
	c.Policy = slices.Clone(f.Policy)
	for i, p := range f.Policy {
		c.Policy[i].Body = bytes.Clone(p.Body)
	}
	c.Public, c.Private = bytes.Clone(f.Public), bytes.Clone(f.Private)
	return &c
}

// Marshal returns the PEM file. It fails, with the check "tpm-key-file", if ParseFile would
// refuse the result.
func (f *File) Marshal() ([]byte, error) {
	f = cmp.Or(f, new(File))
	b := cryptobyte.NewBuilder(nil)
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		oid.Add(b, tpmLoadableKey)
		f.addOptional(b)
		b.AddASN1Uint64(uint64(f.Parent))
		b.AddASN1(asn1.OCTET_STRING, func(b *cryptobyte.Builder) { tpmwire.AddTPM2B(b, f.Public) })
		b.AddASN1(asn1.OCTET_STRING, func(b *cryptobyte.Builder) { tpmwire.AddTPM2B(b, f.Private) })
	})
	der, err := b.Bytes()
	if err != nil {
		return nil, fmt.Errorf("tpmkey: %w: %w", checkFile, err)
	}
	out := pem.EncodeToMemory(&pem.Block{Type: tpmKeyFileBlock, Bytes: der})
	_, err = ParseFile(out)
	return out, err
}

func (f *File) addOptional(b *cryptobyte.Builder) {
	v := []byte{0x00}
	switch {
	case f.EmptyAuth && f.emptyAuthOne:
		v[0] = 0x01
	case f.EmptyAuth:
		v[0] = 0xff
	}
	if f.EmptyAuth || !f.emptyAuthAbsent {
		b.AddASN1(tagTPMKeyEmptyAuth, func(b *cryptobyte.Builder) { der.AddTagged(b, asn1.BOOLEAN, v) })
	}
	if len(f.Policy) != 0 {
		b.AddASN1(tagTPMKeyPolicy, func(b *cryptobyte.Builder) {
			b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
				for _, p := range f.Policy {
					p.add(b)
				}
			})
		})
	}
	if f.Description != "" {
		b.AddASN1(tagTPMKeyDescription, func(b *cryptobyte.Builder) { der.AddText(b, f.Description) })
	}
}

func (c *PolicyCommand) add(b *cryptobyte.Builder) {
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(tagTPMKeyEmptyAuth, func(b *cryptobyte.Builder) { b.AddASN1Uint64(uint64(c.Command)) })
		b.AddASN1(tagTPMKeyPolicy, func(b *cryptobyte.Builder) { der.AddTagged(b, asn1.OCTET_STRING, c.Body) })
	})
}
