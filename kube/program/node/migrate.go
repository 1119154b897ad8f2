package node

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkMigrate is the check of a node that migrate does not change.
const checkMigrate refusal.Check = "migrate"

// readyLimit is how long migrate waits for a Ready kubelet before it puts everything back.
const readyLimit = 2 * time.Minute

// migrationName is held in stateDir, so that two runs do not change files at once.
const migrationName = "migration"

// An attester gets the node's certificates: an *authenticator.Authenticator.
type attester interface {
	Run(ctx context.Context) error
	Status() *authenticator.Status
}

// migration is one run of the command migrate: it has the kubelet of a node that kubeadm joined take its
// certificate from this program. Until the kubelet is Ready, each change can be put back.
type migration struct {
	node        string
	attester    attester
	stateDir    string
	kubeconfig  string   // the authenticator's
	kubeletConf string   // the kubelet's
	dropIn      string   // the file that hides kubeadm's own
	pki         string   // the folder of the kubelet's plain certificates
	flagFiles   []string // patterns
	configFile  string   // of this program
	timeout     time.Duration
	undo        bool
	tick        time.Duration // between two looks
	readyLimit  time.Duration
	out         io.Writer
	systemctl   func(ctx context.Context, args ...string) (string, error)
	ready       func(ctx context.Context, since time.Time) error
	before      func(step string) error // of tests: an error is the step's, a panic a loss of power
}

// migrate is the command.
func migrate(ctx context.Context, a attester, c *authenticator.Config, kubeconfig, configFile string, args []string,
	stdout, stderr io.Writer) error {
	if c.Kind == nil {
		return refusal.Config("evidence", "none", "evidence: without it, there is no attested certificate to migrate to")
	}
	m := newMigration(c, kubeconfig, configFile, stdout)
	if err := m.parse(args, stderr); err != nil {
		return err
	}
	m.attester = a
	return m.run(ctx)
}

// newMigration is a migration with the places of kubeadm's packages.
func newMigration(c *authenticator.Config, kubeconfig, configFile string, out io.Writer) *migration {
	m := &migration{node: c.NodeName, stateDir: c.Dir, kubeconfig: cmp.Or(kubeconfig, defaultKubeconfig),
		kubeletConf: "/etc/kubernetes/kubelet.conf", dropIn: "/etc/systemd/system/kubelet.service.d/" + kubeadmDropIn,
		pki: "/var/lib/kubelet/pki", flagFiles: c.Kubelet.FlagFiles, configFile: configFile,
		tick: time.Second, readyLimit: readyLimit, out: out, systemctl: systemctl}
	m.ready = func(ctx context.Context, since time.Time) error {
		return kubeletReady(ctx, m.kubeletConf, m.node, since)
	}
	return m
}

func (m *migration) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("migrate", flag.ContinueOnError)
	flags.DurationVar(&m.timeout, "timeout", 15*time.Minute, "how long to wait until an operator approves the machine")
	flags.DurationVar(&m.readyLimit, "ready-timeout", m.readyLimit, "how long to wait for a Ready kubelet before everything is put back")
	flags.BoolVar(&m.undo, "undo", false, "put back the files of an interrupted migrate, and change nothing else")
	return flags
}

// parse parses the command line.
func (m *migration) parse(args []string, stderr io.Writer) error {
	flags := m.flags()
	flags.SetOutput(stderr)
	if flags.Parse(args) != nil || flags.NArg() != 0 {
		return fmt.Errorf("%w: want migrate [--timeout TIME] [--ready-timeout TIME] [--undo]", errCommandLine)
	}
	for name, limit := range map[string]time.Duration{"--timeout": m.timeout, "--ready-timeout": m.readyLimit} {
		if limit <= 0 {
			return fmt.Errorf("%w: %w", errCommandLine, refusal.Config(name, limit.String(), "a positive time"))
		}
	}
	return nil
}

// run migrates the node, after it has ended an interrupted run. Its error matches errUndecided if there was
// no certificate in time.
func (m *migration) run(ctx context.Context) error {
	if err := safefile.CheckLasting(m.stateDir); err != nil { // a run that a loss of power interrupts must be found again
		return fmt.Errorf("stateDir: %w", err)
	}
	store, err := certstore.Open(m.stateDir)
	if err != nil {
		return err
	}
	_, release, err := store.Hold(migrationName)
	if err != nil {
		return fmt.Errorf("cannot begin to migrate, with the lock in %s: %w", m.stateDir, err)
	}
	defer func() { _ = release() }() // the kernel releases it when the process ends
	if err := sweep(m.journalPath()); err != nil {
		return err
	}
	if done, err := m.resume(ctx); done || err != nil || m.undo {
		return err
	}
	changes, err := m.plan(ctx)
	if err == nil && changes != nil {
		if err = m.attest(ctx); err == nil {
			changes, err = m.plan(ctx) // the operator may have taken a while
		}
	}
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	if changes == nil {
		m.say("%s names a plugin already: nothing to do", m.kubeletConf)
		return nil
	}
	return m.change(ctx, changes)
}

func (m *migration) say(format string, args ...any) {
	fmt.Fprintln(m.out, refusal.Escape(fmt.Sprintf(format, args...)))
}

// attest waits until the node has a certificate. The daemon may run already, as a service, and get it.
func (m *migration) attest(ctx context.Context) (err error) {
	if m.attester.Status().Usable {
		return nil
	}
	m.say("the machine attests; unless the cluster admits it already, an operator runs \"kubectl nodeattest pending\", "+
		"and with the machine of the line of %s \"kubectl nodeattest approve %s --machine MACHINE --existing-node\"", m.node, m.node)
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	running := recovered.Go(func() error { return m.attester.Run(ctx) })
	defer func() {
		cancel()
		if running == nil {
			return
		}
		if late := <-running; err != nil {
			err = errors.Join(err, late)
		}
	}()
	ticker := time.NewTicker(m.tick)
	defer ticker.Stop()
	for {
		select {
		case err := <-running:
			if running = nil; err != nil && !errors.Is(err, certstore.ErrLocked) {
				return err
			}
		case <-ticker.C:
		case <-ctx.Done():
			if err := caller.Err(); err != nil { // a signal
				return err
			}
			return fmt.Errorf("%w: no certificate within %s: %s", errUndecided, m.timeout, m.lastError())
		}
		if m.attester.Status().Usable {
			return nil
		}
	}
}

// lastError returns the error of the last attempt to get the client certificate.
func (m *migration) lastError() string {
	for _, c := range m.attester.Status().Certificates {
		if c.LastError != "" {
			return c.LastError
		}
	}
	return "the request is pending: an operator has to approve the machine"
}

// change changes the files, restarts the kubelet, and waits for it. It puts everything back after an error.
func (m *migration) change(ctx context.Context, changes []change) error {
	j, err := m.begin(ctx, changes)
	if err != nil {
		return errors.Join(fmt.Errorf("nothing was changed: %w", err), remove(m.journalPath()))
	}
	if err := m.apply(ctx, j, changes); err != nil {
		back := m.putBack(context.WithoutCancel(ctx), j)
		if back != nil {
			return errors.Join(err, fmt.Errorf("not everything is put back: "+
				"run \"kubelet-authenticator migrate --undo\" when its cause is gone: %w", back))
		}
		return fmt.Errorf("everything is put back, and the kubelet has its old files: %w", err)
	}
	return m.finish(ctx)
}

// apply switches to the new files. A power failure leaves the old ones or a pair that works: with the
// drop-in alone, the kubelet goes on with the plain certificate.
func (m *migration) apply(ctx context.Context, j *journal, changes []change) error {
	for _, c := range changes {
		if err := m.stage(c); err != nil {
			return err
		}
	}
	for _, c := range changes {
		if err := m.step("switch "+filepath.Base(c.path), func() error { return rename(c.staged(), c.path) }); err != nil {
			return err
		}
	}
	if err := m.unit(ctx, "daemon-reload"); err != nil {
		return err
	}
	if err := m.unit(ctx, "restart", "kubelet"); err != nil {
		return err
	}
	since := time.Now()
	m.say("the kubelet has its new files, and is restarted: waiting until the node is Ready, for %s at most", m.readyLimit)
	if err := m.step("wait", func() error { return m.waitReady(ctx, since) }); err != nil {
		return err
	}
	j.Phase = phaseReady
	return m.write(j)
}

// waitReady waits until the kubelet has reported a Ready node since a time.
func (m *migration) waitReady(ctx context.Context, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, m.readyLimit)
	defer cancel()
	ticker := time.NewTicker(m.tick)
	defer ticker.Stop()
	for {
		err := m.ready(ctx, since)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("the kubelet is not Ready within %s: %w", m.readyLimit, err)
		}
	}
}

// step does one step, which tests can keep from happening.
func (m *migration) step(name string, do func() error) error {
	if m.before != nil {
		if err := m.before(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return do()
}

// unit has systemd do something, as one step.
func (m *migration) unit(ctx context.Context, args ...string) error {
	return m.step("systemctl "+args[0]+" "+args[len(args)-1], func() error {
		_, err := m.systemctl(ctx, args...)
		return err
	})
}
