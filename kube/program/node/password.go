package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/tpmcapability"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// defaultPassword is where the program keeps the password of the endorsement hierarchy. It is in
// no folder that a reboot empties, or that an operator removes to have the node begin anew: without
// the file no program can use the hierarchy until TPM2_Clear.
const defaultPassword = "/var/lib/nodeattest-tpm/endorsement-password"

// managedPassword is the value of endorsementPassword with which the program makes the password.
const managedPassword = "managed"

// endorsement reads who makes the password of the endorsement hierarchy, and where it is.
func (t *tpmSettings) endorsement(ak *attestationKey) (kept passwordFile, password secret.Value[[]byte], err error) {
	const field = "evidence.tpm.endorsementPassword"
	path := t.EndorsementPasswordFile
	switch {
	case t.EndorsementPassword == "" && path == "":
	case t.EndorsementPassword == "":
		password, err = readPassword(path)
	case t.EndorsementPassword != managedPassword:
		err = refusal.Config(field, refusal.Quote(t.EndorsementPassword), managedPassword+`, or "": a password has a file of its own`)
	case ak.Handle != 0:
		err = refusal.Config(field, managedPassword+" beside ak "+ak.name, "none: whoever can use the TPM can use that key, without the hierarchy's password")
	case path != "" && !filepath.IsAbs(path):
		err = refusal.Config(field+"File", refusal.Quote(path), "an absolute path: the kubelet starts the plugin in another folder")
	default:
		kept = passwordFile(filepath.Clean(orDefault(path, defaultPassword)))
	}
	return kept, password, err
}

// A passwordFile is where the program keeps the password that it gives the endorsement hierarchy;
// "" is nowhere, and it gives none.
type passwordFile string

// apart refuses a file in one of these folders, which can be emptied at no loss.
func (f passwordFile) apart(folders ...string) error {
	for _, folder := range folders {
		if strings.HasPrefix(string(f), filepath.Clean(folder)+"/") {
			return refusal.Config("evidence.tpm.endorsementPasswordFile", refusal.Quote(string(f)), "a folder of its own: when "+folder+" is emptied, nobody could use the TPM")
		}
	}
	return nil
}

// ready returns the TPM with the password, which it makes at the first start, and sets again after
// TPM2_Clear: clearing the TPM does not reveal it, and without it the hierarchy would stay
// open to all. The password is on disk before the TPM has it. A wrong one is not counted by a TPM,
// and is tried at each attempt: what mends it, TPM2_Clear, does not change the file.
func (f passwordFile) ready(ctx context.Context, t *authenticator.TPM) (*authenticator.TPM, error) {
	if f == "" {
		return t, nil
	}
	if err := f.folder(); err != nil {
		return nil, fmt.Errorf("folder of the endorsement password (endorsementPasswordFile): %w", err)
	}
	device, err := tpm.OpenTPM(t.Path)
	if err != nil {
		return nil, err
	}
	k := *t
	err = tpmcapability.WithRoom(ctx, t.Path, device, func() (err error) {
		k.Options.EndorsementPassword, err = tpm.EndorsementPassword(ctx, device, string(f))
		return err
	})
	return &k, errors.Join(err, device.Close())
}

// folder makes the folder, unless a restart empties it. It is on disk before there is a password
// in it.
func (f passwordFile) folder() error {
	if err := safefile.CheckLasting(string(f)); err != nil {
		return err
	}
	dir := filepath.Dir(string(f))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := safefile.CheckWay(dir); err != nil {
		return err
	}
	above, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return err
	}
	return errors.Join(above.Sync(), above.Close())
}

// state says for status whether there is a password. It does not read it.
func (f passwordFile) state() (string, error) {
	open, _, err := safefile.Open(string(f), os.O_RDONLY, safefile.Private)
	where := "set, in "
	switch {
	case errors.Is(err, fs.ErrNotExist):
		where, err = "none yet; it will be in ", nil
	case err != nil:
		where = "in "
	default:
		err = open.Close()
	}
	if err = errors.Join(err, safefile.CheckLasting(string(f))); err != nil {
		err = fmt.Errorf("endorsement password in %s: %w", f, err)
	}
	return where + string(f), err
}

// keptPassword returns the file of the password of the TPM's endorsement hierarchy, or "".
func keptPassword(evidence authenticator.Evidence) passwordFile {
	if t, ok := evidence.(*preparedTPM); ok {
		return t.password
	}
	return ""
}
