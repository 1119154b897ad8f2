package node

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

// Phases of a journal. An interrupted run is put back in the first, and ended in the second.
const (
	phaseChanging = "changing"
	phaseReady    = "ready"
)

// journal is written before the first change, in stateDir, and removed after the last one.
type journal struct {
	Phase string    `json:"phase"`
	Files []changed `json:"files"`
	// Kubelet is systemd's InvocationID of the kubelet before the change: with another one, the kubelet may
	// have read new files, and is restarted when they are put back.
	Kubelet string `json:"kubelet"`
	// Service says that the kubelet-authenticator's service ran before.
	Service bool `json:"service"`
}

// changed is a file that is being replaced.
type changed struct {
	Path string `json:"path"`
	// Existed says that there was a file, and NewFolder that not even its folder was there.
	Existed   bool `json:"existed"`
	NewFolder bool `json:"newFolder"`
	// New is the SHA-256 of the new file: one that still stands there without the old one's other name cannot
	// be put back.
	New string `json:"new,omitempty"`
}

// kept is the other name of the old file: a link in the same folder, so that no full disk keeps it from
// being put back, with its owner and its mode. staged is the new file before the switch. systemd reads
// neither name.
func (c changed) kept() string   { return nextTo(c.Path, "old") }
func (c change) staged() string  { return nextTo(c.path, "new") }
func (c changed) staged() string { return nextTo(c.Path, "new") }

func nextTo(path, what string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".migrate-"+what)
}

func (m *migration) journalPath() string { return journalPath(m.stateDir) }

func journalPath(stateDir string) string { return filepath.Join(stateDir, "migration.json") }

// readJournal reads the journal; nil without one.
func readJournal(path string) (*journal, error) {
	text, err := safefile.Read(path, configfile.MaxSize, safefile.Private)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no journal is no fault
	}
	j := new(journal)
	if err == nil {
		err = json.Unmarshal(text, j)
	}
	if err == nil && j.Phase != phaseReady && j.Phase != phaseChanging {
		err = checkMigrate.Refuse("phase "+refusal.Quote(j.Phase), phaseChanging+" or "+phaseReady)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, of an interrupted migration: %w", path, err)
	}
	return j, nil
}

// checkEnded refuses a node on which a migration has not ended, with the command that ends it.
func checkEnded(stateDir string) error {
	path := journalPath(stateDir)
	switch j, err := readJournal(path); {
	case err != nil:
		return err
	case j == nil:
		return nil
	case j.Phase == phaseReady:
		return checkMigrate.Refuse("a migration with a Ready kubelet that has not ended, in "+path,
			"one that has removed the plain credential: unless migrate runs now, run \"kubelet-authenticator migrate\" again")
	default:
		return checkMigrate.Refuse("a migration that is unfinished, in "+path, "one that has ended: unless migrate runs now, run "+
			"\"kubelet-authenticator migrate\" again, or \"kubelet-authenticator migrate --undo\" to have the kubelet's old files back")
	}
}

func (m *migration) write(j *journal) error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return m.step("journal "+j.Phase, func() error { return safefile.Replace(m.journalPath(), safefile.Content(text)) })
}

// begin writes the journal.
func (m *migration) begin(ctx context.Context, changes []change) (*journal, error) {
	j := &journal{Phase: phaseChanging}
	for _, c := range changes {
		j.Files = append(j.Files, changed{Path: c.path, Existed: c.existed, NewFolder: !exists(filepath.Dir(c.path)), New: digest(c.content)})
	}
	var err error
	if j.Kubelet, err = m.invocation(ctx); err != nil {
		return nil, err
	}
	if j.Service, err = m.active(ctx, "kubelet-authenticator"); err != nil {
		return nil, err
	}
	return j, m.write(j)
}

// resume ends what an interrupted run has left: done says that the node has migrated.
func (m *migration) resume(ctx context.Context) (done bool, err error) {
	j, err := readJournal(m.journalPath())
	switch {
	case err != nil:
		return false, err
	case j == nil:
		if m.undo {
			m.say("no interrupted migration: nothing to put back")
		}
		return false, nil
	case j.Phase == phaseReady:
		m.say("an interrupted migration had a Ready kubelet, and is ended")
		return true, m.finish(ctx)
	}
	for _, c := range j.Files { // put back as root: a file of another program may be removed by it
		if c.Path != m.kubeletConf && c.Path != m.dropIn {
			return false, fmt.Errorf("%s, of an interrupted migration: %w", m.journalPath(),
				checkMigrate.Refuse("file "+refusal.Quote(c.Path), m.kubeletConf+" or "+m.dropIn))
		}
	}
	if err := m.putBack(context.WithoutCancel(ctx), j); err != nil {
		return false, fmt.Errorf("an interrupted migration, of which not everything is put back: %w", err)
	}
	m.say("an interrupted migration is put back: the kubelet has its old files")
	return false, nil
}

// stage writes a new file next to the old one, and gives the old one its second name.
func (m *migration) stage(c change) error {
	dir, name := filepath.Split(c.path)
	err := m.step("stage "+name, func() error {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as systemd's other folders
			return err
		}
		return safefile.Replace(c.staged(), func(f *os.File) error {
			_, err := f.Write(c.content)
			return errors.Join(err, f.Chmod(c.mode))
		})
	})
	if err != nil || !c.existed {
		return err
	}
	return m.step("keep "+name, func() error {
		return errors.Join(os.Link(c.path, nextTo(c.path, "old")), syncFolder(dir))
	})
}

// putBack puts the old files back, in the reverse order. It goes on after an error, and then leaves the
// journal: each step can be done again.
func (m *migration) putBack(ctx context.Context, j *journal) error {
	var failed []error
	for _, c := range slices.Backward(j.Files) {
		failed = append(failed, m.step("put back "+filepath.Base(c.Path), c.putBack))
	}
	failed = append(failed, m.unit(ctx, "daemon-reload"))
	if now, err := m.invocation(ctx); err != nil || now == "" || now != j.Kubelet {
		failed = append(failed, m.unit(ctx, "restart", "kubelet"))
	}
	if !j.Service {
		failed = append(failed, m.unit(ctx, "stop", "kubelet-authenticator"))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return m.step("end", func() error { return remove(m.journalPath()) })
}

// putBack restores one file, whether it has been replaced or not.
func (c changed) putBack() error {
	folder := filepath.Dir(c.Path)
	if c.NewFolder && !exists(folder) {
		return nil
	}
	err := errors.Join(sweep(c.staged()), remove(c.staged()))
	switch {
	case !c.Existed:
		err = errors.Join(err, remove(c.Path))
	case !exists(c.kept()):
		err = errors.Join(err, c.checkOld())
	default: // with one file behind both names, rename leaves both
		err = errors.Join(err, rename(c.kept(), c.Path), remove(c.kept()))
	}
	if err == nil && c.NewFolder {
		_ = os.Remove(folder) // unless it has other files by now
	}
	return err
}

// checkOld refuses the new file where the old one is gone.
func (c changed) checkOld() error {
	text, err := os.ReadFile(c.Path)
	if err == nil && c.New == digest(text) {
		err = checkMigrate.Refuse("the new file "+c.Path+", and no "+c.kept(), "the old file: write it again, from a backup or as kubeadm has it")
	}
	return err
}

func digest(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// sweep removes what a writer of a file that was killed has left next to it.
func sweep(path string) error {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	safefile.Sweep(dir, filepath.Base(path))
	return dir.Close()
}

// finish removes the plain credentials of a node that has migrated. The service goes on to renew the
// attested ones, and after each start of the machine.
func (m *migration) finish(ctx context.Context) error {
	err := errors.Join(m.step("remove credential", m.removeCredential), m.step("remove certificates", m.removeCertificates),
		m.unit(ctx, "enable", "kubelet-authenticator"))
	for _, path := range []string{m.kubeletConf, m.dropIn} {
		err = errors.Join(err, m.step("remove old "+filepath.Base(path), func() error { return remove(nextTo(path, "old")) }))
	}
	if err == nil {
		err = m.step("end", func() error { return remove(m.journalPath()) })
	}
	if err != nil {
		return fmt.Errorf("the node has migrated, and is Ready, "+
			"but the plain credential is not removed everywhere: run \"kubelet-authenticator migrate\" again: %w", err)
	}
	m.say("the node %s has migrated: its kubelet is Ready with an attested certificate", m.node)
	return nil
}

// removeCredential takes the credential out of the authenticator's kubeconfig.
func (m *migration) removeCredential() error {
	text, err := readFile(m.kubeconfig, configfile.MaxSize)
	if err != nil {
		return err
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		return &refusal.Error{Check: refusal.CheckConfig, Got: "an invalid kubeconfig " + m.kubeconfig, Err: err}
	}
	had := false
	for _, user := range config.AuthInfos {
		had = had || user.Token+user.TokenFile+user.ClientCertificate+user.ClientKey != "" ||
			len(user.ClientCertificateData)+len(user.ClientKeyData) != 0
		user.Token, user.TokenFile, user.ClientCertificate, user.ClientKey = "", "", "", ""
		user.ClientCertificateData, user.ClientKeyData = nil, nil
	}
	if !had {
		return nil
	}
	if text, err = clientcmd.Write(*config); err != nil {
		return err
	}
	return replace(m.kubeconfig, text)
}

// removeCertificates removes the kubelet's plain certificates, with their keys.
func (m *migration) removeCertificates() error {
	files, err := os.ReadDir(m.pki)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, file := range files {
		if strings.HasPrefix(file.Name(), "kubelet-client-") {
			err = errors.Join(err, remove(filepath.Join(m.pki, file.Name())))
		}
	}
	return err
}

// remove removes a file, if it is there.
func remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncFolder(filepath.Dir(path)))
}

func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(to))
}

// syncFolder makes the names in a folder survive a loss of power.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
