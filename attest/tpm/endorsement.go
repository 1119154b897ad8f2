package tpm

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// An endorsement password is 32 characters, 192 random bits in base64url: 32 bytes is the
// most that TPMs with SHA-256 as their strongest hash accept, and printable characters can be
// given to tpm2-tools ("head -c 32 <path> | tpm2_… -P file:-": they take a line feed for a part of
// it). None of them is a zero byte, which a TPM would strip at the end.
const endorsementPasswordSize = 32

// checkPasswordFile: a file with a secret cannot be trusted: others may read it, another user
// owns it, it does not have the form that this package writes, or a restart of the machine loses it.
const checkPasswordFile refusal.Check = "password-file"

// ErrHierarchyPassword says that a hierarchy of the TPM refused the given password, or the
// empty one if none was given. The error that wraps it names the hierarchy; the password is
// never in an error.
var ErrHierarchyPassword = tpmop.ErrHierarchyPassword

// EndorsementPassword gives the TPM's endorsement hierarchy a password and keeps it in a
// file, so that other software on the node that can reach the TPM cannot make attestation
// keys. It is meant to run at every start: whichever of the two steps (file and TPM) earlier
// runs or other processes have done, it does the rest and returns the password, 32 printable
// bytes.
//
// path names the file: 32 characters and a line feed, mode 0600, in an existing directory. It
// is written to a temporary file next to it, synced and linked to its name, never over
// another file, and it is on disk before the TPM gets the password. (A crash in between can
// leave behind a file .<name>.<random>.tmp, with the same mode.) The file system must support
// hard links.
//
// It fails, and changes neither, if the file has group or other permissions, an owner other
// than that of this process, or another form, or if its directory is in memory, so that a restart
// loses the password (on Linux: a tmpfs, a ramfs, or an overlay over one or over a directory that
// cannot be seen; elsewhere this is not checked): the check "password-file". So it does if the hierarchy has a
// password and there is no file, or if the hierarchy's password is not the one in the file
// (both ErrHierarchyPassword). A file that is lost has no other remedy than a copy of it, or
// TPM2_Clear, which also removes the owner's keys. On Windows, neither mode nor owner is
// checked: give the directory an access list of its own.
//
// TPM2_Clear removes the password; the next run sets it again: no other party has learnt it, and the
// hierarchy would stay open otherwise. Until then it is open, so the password stops only those
// who cannot clear the TPM: the lockout hierarchy must have a password too, or TPM2_ClearControl
// must have disabled the command. Persistent keys that have passwords of their own, or none, as
// Azure's AK and EKs of the high range, are used without the hierarchy's.
//
// Every other program that makes keys in the hierarchy needs the password from then on: agents of the
// cloud on Compute Engine, a maker's tools for its IAK.
func EndorsementPassword(ctx context.Context, tpm transport.TPM, path string) (secret.Value[[]byte], error) {
	var password []byte
	err := safefile.Refused(checkPasswordFile, safefile.CheckLasting(path)) // before the TPM is asked
	if err == nil {
		err = tpmop.Share(tpm).Do(ctx, func(h *tpmop.Handles) (err error) {
			password, err = endorsementPassword(ctx, h, path)
			return err
		})
	}
	if err != nil {
		return secret.Value[[]byte]{}, fmt.Errorf("tpm: endorsement password in %s: %w", path, err)
	}
	return secret.New(password), nil
}

// endorsementPassword looks at the TPM before the file: a racing process writes the file
// before it sets the password, so if a password is seen, it has a file.
func endorsementPassword(ctx context.Context, h *tpmop.Handles, path string) ([]byte, error) {
	isSet, err := hasEndorsementPassword(ctx, h)
	if err != nil {
		return nil, err
	}
	content, err := readPasswordFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isSet:
		return nil, fmt.Errorf("%w: the endorsement hierarchy has one already, and there is no file: %s", ErrHierarchyPassword, remedy)
	case errors.Is(err, fs.ErrNotExist):
		content, err = newPasswordFile(path)
	}
	if err != nil {
		return nil, err
	}
	password, err := parsePasswordFile(content)
	if err != nil {
		return nil, err
	}
	if !isSet {
		// The process that wrote the file may have died before it was safe on disk.
		if err := safefile.Sync(path); err != nil {
			return nil, err
		}
		change, err := tpmop.Encrypt(ctx, h, tpm2.HierarchyChangeAuth{
			AuthHandle: tpmop.WithPassword(tpm2.TPMRHEndorsement, nil, nil),
			NewAuth:    tpm2.TPM2BAuth{Buffer: password},
		})
		if err != nil {
			return nil, err
		}
		_, err = tpmop.Run(ctx, h.TPM, change, "TPM2_HierarchyChangeAuth of the endorsement hierarchy")
		if !errors.Is(err, tpm2.TPMRCBadAuth) {
			return password, tpmop.ExplainPassword(err, tpm2.TPMRHEndorsement, nil)
		}
		// Another process was faster, using the same file.
	}
	err = checkEndorsementPassword(ctx, h, password)
	if errors.Is(err, ErrHierarchyPassword) {
		err = fmt.Errorf("%w: it was set elsewhere: %s", err, remedy)
	}
	if err != nil {
		return nil, err
	}
	return password, nil
}

// remedy says who can do what about a password that is not in the file.
const remedy = "an operator puts the file of this TPM back, or clears the TPM (TPM2_Clear: in the firmware's settings, or tpm2_clear), which also removes its owner's keys"

// hasEndorsementPassword asks the TPM, or tries the empty password if the TPM does not say.
func hasEndorsementPassword(ctx context.Context, h *tpmop.Handles) (bool, error) {
	if has, known, err := tpmop.HasEndorsementPassword(ctx, h); err != nil || known {
		return has, err
	}
	err := checkEndorsementPassword(ctx, h, nil)
	if errors.Is(err, ErrHierarchyPassword) {
		return true, nil
	}
	return false, err
}

// newPasswordFile creates the file and returns its content, which is another process's if that was
// faster.
func newPasswordFile(path string) ([]byte, error) {
	var random [endorsementPasswordSize * 3 / 4]byte
	rand.Read(random[:])
	content := append(base64.RawURLEncoding.AppendEncode(nil, random[:]), '\n')
	if err := safefile.Create(path, safefile.Content(content)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return readPasswordFile(path)
}

func readPasswordFile(path string) ([]byte, error) {
	content, err := safefile.Read(path, endorsementPasswordSize+1, safefile.Private)
	return content, safefile.Refused(checkPasswordFile, err)
}

func parsePasswordFile(content []byte) ([]byte, error) {
	password, feed := bytes.CutSuffix(content, []byte("\n"))
	random, err := base64.RawURLEncoding.DecodeString(string(password)) // which skips line breaks
	if !feed || len(password) != endorsementPasswordSize || err != nil || len(random) != endorsementPasswordSize*3/4 {
		return nil, fmt.Errorf("%w: %d bytes that are not %d characters of base64url and a line feed", checkPasswordFile, len(content), endorsementPasswordSize)
	}
	return password, nil
}

// checkEndorsementPassword has the TPM check the password by using it for its purpose: to
// create a primary key, the fastest kind there is. (A policy session would leave a handle
// that would be lost with the TPM's answer.) Wrong passwords of this
// hierarchy do not count towards a lockout.
func checkEndorsementPassword(ctx context.Context, h *tpmop.Handles, password []byte) error {
	_, err := tpmop.CreatePrimary(ctx, h, tpm2.TPMRHEndorsement, password, tpm2.Marshal(AKTemplateECDSAP256()))
	return err
}
