package node

import (
	"cmp"
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

// defaultPassword is the file of the endorsement hierarchy's password. It is in no folder that a reboot
// empties, or that an administrator removes to make the node join again: without the file no program
// can use the hierarchy until TPM2_Clear.
const defaultPassword = "/var/lib/nodeattest-tpm/endorsement-password"

// managedPassword is the value of endorsementPassword for a password that the program generates.
const managedPassword = "managed"

// endorsement reads the fields of the endorsement hierarchy's password.
func (t *tpmSettings) endorsement(ak *attestationKey) (kept passwordFile, password secret.Value[[]byte], err error) {
	const field = "evidence.tpm.endorsementPassword"
	path := t.EndorsementPasswordFile
	switch {
	case t.EndorsementPassword == "" && path == "":
	case t.EndorsementPassword == "":
		password, err = readPassword(path)
	case t.EndorsementPassword != managedPassword:
		err = refusal.Config(field, refusal.Quote(t.EndorsementPassword), managedPassword+`, or "": put a password into endorsementPasswordFile`)
	case ak.Handle != 0:
		err = refusal.Config(field, managedPassword+" with ak "+ak.name, `"": any program with access to the TPM can use a persistent key without the hierarchy's password`)
	case path != "" && !filepath.IsAbs(path):
		err = refusal.Config(field+"File", refusal.Quote(path), "an absolute path, as the kubelet runs the plugin in another folder")
	default:
		kept = passwordFile(filepath.Clean(cmp.Or(path, defaultPassword)))
	}
	return kept, password, err
}

// A passwordFile is the file of the password that the program sets for the endorsement hierarchy; "" sets
// none.
type passwordFile string

// apart refuses a file in one of these folders, which an administrator may empty.
func (f passwordFile) apart(folders ...string) error {
	for _, folder := range folders {
		if strings.HasPrefix(string(f), filepath.Clean(folder)+"/") {
			return refusal.Config("evidence.tpm.endorsementPasswordFile", refusal.Quote(string(f)), "a file outside "+folder+": if that folder were emptied, the TPM could not be used until TPM2_Clear")
		}
	}
	return nil
}

// ready returns the TPM with the password, which it generates at the first start, and sets again after
// TPM2_Clear: otherwise any program could use the hierarchy. The password is on disk before it is set in
// the TPM. A wrong password is tried at each attempt: a TPM does not count it, and its remedy,
// TPM2_Clear, does not change the file.
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

// folder creates and syncs the folder. It refuses a folder that a restart empties.
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

// state returns, for the command status, whether the file exists. It does not read the password.
func (f passwordFile) state() (string, error) {
	open, _, err := safefile.Open(string(f), os.O_RDONLY, safefile.Private)
	where := "set, in "
	switch {
	case errors.Is(err, fs.ErrNotExist):
		where, err = "not set yet; it will be in ", nil
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
