package node

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkDoctor is the check of the faults that doctor finds by itself.
const checkDoctor refusal.Check = "doctor"

// class is the exit status of doctor: of several broken lines the lowest counts.
type class int

// The classes, by where the fault is.
const (
	classMachine class = 4 + iota // the machine and its TPM
	classCluster                  // the cluster, or the way to it
	classKubelet                  // the kubelet's configuration
)

// broken is the error of doctor.
type broken struct {
	class class
	lines []string
}

func (b *broken) Error() string { return "broken: " + strings.Join(b.lines, ", ") }

// examination is one run of the command doctor.
type examination struct {
	roots string
	lines []authenticator.Diagnosis
	now   func() time.Time
}

func (e *examination) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("doctor", flag.ContinueOnError)
	flags.StringVar(&e.roots, "roots", "", "a file of certificates in PEM, as for identity: the chain is verified by them")
	return flags
}

// command parses the command line, and runs the command.
func (e *examination) command(ctx context.Context, args []string, from source, stdout, stderr io.Writer) error {
	flags := e.flags()
	flags.SetOutput(stderr)
	if err := flags.Parse(args); err != nil || flags.NArg() != 0 {
		return fmt.Errorf("%w: want doctor [--roots FILE]", errCommandLine)
	}
	s, err := from.settings("", "")
	if err != nil {
		return err
	}
	c, err := s.config(from.kinds)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	c.Now = e.now
	read := c.API
	c.API = func() (*rest.Config, error) {
		found, err := read()
		if err != nil {
			err = fmt.Errorf("kubeconfig %s, which kubelet-authenticator discover writes: %w", cmp.Or(s.Kubeconfig, defaultKubeconfig), err)
		}
		return found, err
	}
	e.machine(ctx, c.Kind)
	e.lines = append(e.lines, authenticator.Diagnose(ctx, c)...)
	if err := checkEnded(c.Dir); err != nil {
		e.add("migration", "", err)
	}
	return e.write(stdout)
}

func (e *examination) add(subject, text string, err error) {
	e.lines = append(e.lines, authenticator.Diagnosis{Subject: subject, Text: text, Broken: err})
}

// machine examines the evidence.
func (e *examination) machine(ctx context.Context, evidence authenticator.Evidence) {
	if evidence == nil {
		e.add("device", "not used: the configuration has evidence: none", nil)
		return
	}
	k, _ := evidence.(*authenticator.TPM)
	if p, ok := evidence.(*preparedTPM); ok {
		k = p.TPM
	}
	if k != nil && !e.tpm(k.Path) {
		e.lines = append(e.lines, authenticator.Diagnosis{Subject: "lockout", Text: "not read: see device", Unknown: true}, authenticator.Diagnosis{Subject: "chain", Text: "not read: see device", Unknown: true})
		return
	}
	m, err := readMachine(ctx, evidence)
	if k == nil {
		e.add("device", "evidence of "+evidence.Provider()+" was read", err)
		return
	}
	if err != nil {
		e.add("chain", "", err)
		return
	}
	e.add("chain", "", nil)
	line := &e.lines[len(e.lines)-1]
	switch {
	case len(m.chain) == 0:
		line.Broken = checkDoctor.Refuse("a machine whose EK has no certificate in the TPM", "a certificate, or an operator who lists the key: "+m.listed())
	case e.roots != "":
		if line.Broken = m.verify(ctx, e.roots, e.now()); line.Broken == nil {
			line.Text = "a certificate of " + m.issuer() + ", verified by " + m.root
		}
	default:
		line.Text = "a certificate of " + m.issuer() + ", not verified: --roots FILE has the control plane's roots"
	}
}

// tpm examines the TPM, and reports whether it answers. It reads properties only.
func (e *examination) tpm(path string) bool {
	device, err := tpm.OpenTPM(path)
	var wrong, most, state, recovery uint32
	if err == nil {
		for property, into := range map[tpm2.TPMPT]*uint32{tpm2.TPMPTLockoutCounter: &wrong, tpm2.TPMPTMaxAuthFail: &most, tpm2.TPMPTPermanent: &state, tpm2.TPMPTLockoutInterval: &recovery} {
			if *into, err = property32(device, property); err != nil {
				break
			}
		}
		err = errors.Join(err, device.Close())
	}
	if err != nil {
		e.add("device", "", &refusal.Error{Check: checkDoctor, Got: path, Want: "a TPM 2.0 that answers: the machine's administrator turns it on in the firmware, or names it in evidence.tpm.device", Err: err})
		return false
	}
	e.add("device", path+" answers", nil)
	text := fmt.Sprintf("%d wrong passwords of the %d that lock the TPM", wrong, most)
	const inLockout = 1 << 9 // TPMA_PERMANENT (TPM 2.0 Library, Part 2, 8.6)
	if state&inLockout != 0 {
		e.add("lockout", "", checkDoctor.Refuse(text, fmt.Sprintf("fewer: find the program that tries passwords; the TPM forgets one each %s, or its owner resets the count (tpm2_dictionarylockout -c)", time.Duration(recovery)*time.Second)))
		return true
	}
	e.add("lockout", text, nil)
	return true
}

// property32 reads a property of the TPM.
func property32(device transport.TPM, property tpm2.TPMPT) (uint32, error) {
	got, err := tpm2.GetCapability{Capability: tpm2.TPMCapTPMProperties, Property: uint32(property), PropertyCount: 1}.Execute(device)
	if err != nil {
		return 0, err
	}
	list, err := got.CapabilityData.Data.TPMProperties()
	if err != nil || len(list.TPMProperty) != 1 || list.TPMProperty[0].Property != property {
		return 0, errors.Join(err, fmt.Errorf("the TPM does not report property 0x%x", uint32(property)))
	}
	return list.TPMProperty[0].Value, nil
}

// classOf returns the class of a line.
func classOf(subject string) class {
	switch subject {
	case "API server", "token", "policy":
		return classCluster
	case "kubelet", "migration":
		return classKubelet
	}
	return classMachine
}

// write writes the lines, the broken ones first, and returns the error of the broken ones.
func (e *examination) write(w io.Writer) error {
	state := func(d authenticator.Diagnosis) int {
		return map[[2]bool]int{{true, false}: 0, {false, true}: 1, {false, false}: 2}[[2]bool{d.Broken != nil, d.Unknown}]
	}
	slices.SortStableFunc(e.lines, func(a, b authenticator.Diagnosis) int { return state(a) - state(b) })
	out, failed := new(strings.Builder), &broken{}
	for _, d := range e.lines {
		text := d.Text
		if d.Broken != nil {
			text = d.Broken.Error()
			failed.lines = append(failed.lines, d.Subject)
			if of := classOf(d.Subject); failed.class == 0 || of < failed.class {
				failed.class = of
			}
		}
		fmt.Fprintf(out, "%-7s  %-10s  %s\n", []string{"BROKEN", "unknown", "ok"}[state(d)], d.Subject, refusal.Escape(text))
	}
	if _, err := io.WriteString(w, out.String()); err != nil || failed.class == 0 {
		return err
	}
	return failed
}
