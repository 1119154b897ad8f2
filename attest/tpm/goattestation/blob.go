package goattestation

import (
	"encoding/base64"
	"fmt"
	"strconv"

	goattest "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	maxBlob = 16 << 10 // bytes; an RSA key's blob has about 2 KiB

	// defaultParent is the persistent storage key under which go-attestation makes keys without
	// a ParentKeyConfig.
	defaultParent tpm2.TPMHandle = 0x81000001

	encrypted  = 2 // KeyEncoding of a key that the TPM encrypted
	tpmVersion = 2
)

// AKSource returns the source of an AK from its blob, of at most 16 KiB, as attest.AK.Marshal
// returns it. The TPM loads it for each operation, under parent: the ParentKeyConfig
// of its AKConfig, nil for go-attestation's default, 0x81000001. Nothing stays in the TPM.
//
// A refusal is a [*refusal.Error]: the check "go-attestation-blob" for other bytes, a key of
// Windows or a parent that is not persistent, else a check of package statement, "ak-attributes"
// for the blob of an attest.Key.
func AKSource(blob []byte, parent *goattest.ParentKeyConfig) (tpm.AKSource, error) {
	file, err := parseBlob(blob, parent)
	if err == nil {
		var public *statement.Public
		if public, err = statement.ParsePublic(file.Public); err == nil {
			err = statement.CheckAKPublic(public)
		}
	}
	if err != nil {
		return tpm.AKSource{}, fmt.Errorf("goattestation: blob of an AK: %w", err)
	}
	return tpm.AKSource{File: file}, nil
}

// KeyFile returns the key file of an application key from its blob, as attest.Key.Marshal has it,
// for tpmkey.Load: the key of a request, which then is resident in the TPM. parent is as in
// [AKSource]. A refusal has the check "go-attestation-blob", or the one of
// [tpmkey.File.Marshal] for a key that cannot sign a request, such as an AK.
func KeyFile(blob []byte, parent *goattest.ParentKeyConfig) (*tpmkey.File, error) {
	file, err := parseBlob(blob, parent)
	if err == nil {
		_, err = file.Marshal()
	}
	if err != nil {
		return nil, fmt.Errorf("goattestation: blob of a key: %w", err)
	}
	return file, nil
}

// parseBlob reads the JSON that go-attestation stores a key as. Keys that it makes have the empty
// password.
func parseBlob(blob []byte, parent *goattest.ParentKeyConfig) (*tpmkey.File, error) {
	handle := defaultParent
	if parent != nil {
		handle = tpm2.TPMHandle(parent.Handle)
	}
	if handle>>24 != 0x81 {
		return nil, checkBlob.Refuse(fmt.Sprintf("the parent 0x%08x", uint32(handle)), "a persistent handle, 0x81000000 to 0x81ffffff")
	}
	if len(blob) > maxBlob {
		return nil, checkBlob.Refuse(strconv.Itoa(len(blob))+" bytes", "at most "+strconv.Itoa(maxBlob))
	}
	var version, encoding int64
	file := &tpmkey.File{EmptyAuth: true, Parent: handle}
	r := strictjson.NewReader(blob)
	err := r.Object(func(name []byte) (err error) {
		switch string(name) {
		case "KeyEncoding":
			encoding, err = r.Int64()
		case "TPMVersion":
			version, err = r.Int64()
		case "Public":
			file.Public, err = readBase64(r)
		case "KeyBlob":
			file.Private, err = readBase64(r)
		default: // the creation data, which prove nothing here
			err = r.Skip()
		}
		return err
	})
	if err == nil {
		err = r.End()
	}
	switch {
	case err != nil:
		return nil, &refusal.Error{Check: checkBlob, Got: "bytes that are not a blob of go-attestation", Err: err}
	case version != tpmVersion:
		return nil, checkBlob.Refuse("a key of TPM version "+strconv.FormatInt(version, 10), "2")
	case encoding != encrypted:
		return nil, checkBlob.Refuse("a key of encoding "+strconv.FormatInt(encoding, 10)+", as Windows keeps keys by their names",
			"2, a key that the TPM encrypted")
	case len(file.Public) == 0 || len(file.Private) == 0:
		return nil, checkBlob.Refuse("a key without Public or KeyBlob", "both")
	}
	return file, nil
}

func readBase64(r *strictjson.Reader) ([]byte, error) {
	s, err := r.String()
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.Strict().DecodeString(s)
}
