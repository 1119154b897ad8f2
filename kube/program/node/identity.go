package node

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

// identification is one run of the command identity, which an operator uses before the machine joins.
type identification struct {
	device, ek, roots, node, form string
}

// checkRoot: no root of identity --roots verifies the certificate of the machine's key.
const checkRoot refusal.Check = "identity-root"

const wantIdentity = "want identity [--device PATH] [--ek NAME] [--roots FILE] [--node NAME] [-o text|inventory]"

func (i *identification) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("identity", flag.ContinueOnError)
	flags.StringVar(&i.device, "device", "", "read this TPM and no configuration file; without a file: "+defaultDevice)
	flags.StringVar(&i.ek, "ek", "", "the TPM's endorsement key, a name of evidence.tpm.ek, and no configuration file; without a file: rsa-2048")
	flags.StringVar(&i.roots, "roots", "", "a file of certificates in PEM: the roots that the control plane trusts, and intermediates; status 1 if none verifies the machine's certificate")
	flags.StringVar(&i.node, "node", "", "the node's name in the inventory; default: that of the configuration file, or the host's name")
	flags.StringVar(&i.form, "o", "text", "text, or inventory: an item of machines in the file of the inventory")
	return flags
}

// command parses the command line, and runs the command.
func (i *identification) command(ctx context.Context, args []string, from source, stdout, stderr io.Writer) error {
	flags := i.flags()
	flags.SetOutput(stderr)
	if err := flags.Parse(args); err != nil || flags.NArg() != 0 || i.form != "text" && i.form != "inventory" {
		return fmt.Errorf("%w: %s", errCommandLine, wantIdentity)
	}
	s, err := from.settings(i.device, i.ek)
	if err != nil {
		return err
	}
	evidence, err := s.evidence(from.kinds)
	if err != nil {
		return err
	}
	if evidence == nil {
		return refusal.Config("evidence", noEvidence, "evidence: this machine has no identity, and its line of the inventory says evidence: none")
	}
	m, err := readMachine(ctx, evidence)
	if err != nil {
		return err
	}
	var unverified error
	if i.roots != "" {
		unverified = m.verify(ctx, i.roots, time.Now())
	}
	if i.form == "text" {
		return errors.Join(m.write(stdout), unverified)
	}
	if unverified != nil {
		return unverified
	}
	line, err := m.inventory(ctx, s, evidence, i.node)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "- %s\n", line)
	return err
}

// source says where the settings of a command come from that needs no configuration file.
type source struct {
	file  string
	given bool // on the command line
	kinds []Evidence
}

// read reads the file.
func (f source) read() (*settings, error) {
	text, err := readFile(f.file, configfile.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration file, see --config: %w", err)
	}
	s, err := parseSettings(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.file, err)
	}
	return s, nil
}

// settings reads the file. Without one, or with device or ek, the settings have a TPM and defaults.
func (f source) settings(device, ek string) (*settings, error) {
	if device == "" && ek == "" {
		s, err := f.read()
		if err == nil || f.given || !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
	}
	section, err := json.Marshal(map[string]any{"device": device, "ek": ek, "ekChainFromNV": true})
	return &settings{Kubelet: kubeletSettings{Config: defaultKubelet, Processes: true}, Evidence: map[string]configfile.Section{tpm.Provider: section}}, err
}

// machine is a machine's evidence, as the machine would present it.
type machine struct {
	kind      string
	presented *attest.Presented
	identity  attest.Identity // "" if the control plane takes it from a certificate
	key       crypto.PublicKey
	chain     [][]byte // the EK's or AK's certificates in DER, leaf first; none if it has none
	root      string   // which of the given roots verifies them
}

// readMachine reads the evidence for a hello, which signs nothing, and uses no password that a TPM counts.
func readMachine(ctx context.Context, evidence authenticator.Evidence) (*machine, error) {
	m := &machine{kind: evidence.Provider()}
	if k, ok := evidence.(*preparedTPM); ok {
		unchanged, err := k.readOnly()
		if err != nil {
			return nil, err
		}
		evidence = unchanged
	}
	if k, ok := evidence.(*authenticator.TPM); ok { // the key's password is for answers
		unlocked := *k
		unlocked.AKPasswordFile = ""
		evidence = &unlocked
	}
	prover, err := evidence.Open(ctx)
	if err != nil {
		return nil, err
	}
	err = prover.Use(ctx, attest.StageHello, func(s attest.Session) error { return m.read(ctx, s) })
	return m, errors.Join(err, prover.Close())
}

func (m *machine) read(ctx context.Context, s attest.Session) (err error) {
	if m.presented, err = s.Present(); err != nil {
		return err
	}
	if m.identity = m.presented.Machine; m.kind != tpm.Provider {
		return nil
	}
	if m.key, err = x509.ParsePKIXPublicKey(m.presented.MachineKey); err != nil {
		return err
	}
	if m.presented.Road == attest.RoadEK {
		m.identity = attest.Identity(fmt.Sprintf("ek:sha256:%x", sha256.Sum256(m.presented.MachineKey)))
	}
	e, err := s.Hello(ctx, attest.Head{Road: m.presented.Road, ClusterID: "identity", TargetSigner: csr.SignerKubeAPIServerClientKubelet})
	if err == nil {
		m.chain = e.Certificates
	}
	return err
}

// readOnly returns the TPM with the password and certificates of the files, without setting a password.
func (c *preparedTPM) readOnly() (*authenticator.TPM, error) {
	k := *c.TPM
	if c.password != "" {
		password, err := readPassword(string(c.password))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		k.Options.EndorsementPassword = password
	}
	if c.ak != nil && c.ak.CertificatesFile != "" {
		chain, err := readCertificates(c.ak.CertificatesFile)
		if err != nil {
			return nil, err
		}
		k.Options.Certificates = tpmcert.CertificatesDER(chain)
	}
	return &k, nil
}

// verify finds the certificate of the file that verifies the machine's. Self-signed ones are the roots and
// the others intermediates; without self-signed ones all are roots.
func (m *machine) verify(ctx context.Context, path string, now time.Time) error {
	all, err := readCertificates(path)
	if err != nil {
		return err
	}
	if len(m.chain) == 0 {
		return &refusal.Error{Check: checkRoot, Got: "a machine whose key has no certificate", Want: "a certificate that a root of " + path + " verifies; without one, " + m.listed()}
	}
	var roots []*x509.Certificate
	for _, c := range all {
		if c.CheckSignatureFrom(c) == nil {
			roots = append(roots, c)
		}
	}
	if len(roots) == 0 {
		roots = all
	}
	var first error
	for _, root := range roots {
		profile, err := m.verifyBy(ctx, root, all, now)
		if err == nil {
			m.root = fmt.Sprintf("%s, SHA-256 %x, profile %s", refusal.Text(root.Subject.String()), sha256.Sum256(root.Raw), profile)
			return nil
		}
		first = cmp.Or(first, err)
	}
	return &refusal.Error{Check: checkRoot, Got: "a certificate of " + m.issuer(), Want: "one that a root of " + path + " verifies", Err: first}
}

// verifyBy verifies the certificates by one root, and returns the profile by which they pass. The error is of
// the first profile.
func (m *machine) verifyBy(ctx context.Context, root *x509.Certificate, all []*x509.Certificate, now time.Time) (string, error) {
	var first error
	if m.presented.Road == attest.RoadEK {
		for _, profile := range []tpmcert.EKProfile{tpmcert.EKProfileTCG(), tpmcert.EKProfileGoogle(), tpmcert.EKProfileIntel(), tpmcert.EKProfileTPM12()} {
			ek, err := tpmcert.ParseEKPresented(m.chain, nil)
			if err != nil {
				return "", err
			}
			v, err := tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{{Roots: []*x509.Certificate{root}, Intermediates: all, Profile: profile}}})
			if err == nil {
				_, err = v.Verify(ctx, ek, nil, now, nil)
			}
			if err == nil {
				return profile.Name, nil
			}
			first = cmp.Or(first, err)
		}
		return "", first
	}
	for _, profile := range []tpmcert.Profile{tpmcert.ProfileTCG(), tpmcert.ProfileGoogle(), tpmcert.ProfileAzure(), tpmcert.ProfileMicrosoftAIK()} {
		ak, err := tpmcert.VerifyAKCertificate([]tpmcert.Issuer{{Roots: []*x509.Certificate{root}, Intermediates: all, Profile: profile}}, m.chain, now)
		if err == nil {
			m.identity = ak.Machine
			return profile.Name, nil
		}
		first = cmp.Or(first, err)
	}
	return "", first
}

// listed says how the control plane trusts a key without a certificate.
func (m *machine) listed() string {
	return "the control plane accepts the key once tpm.allowedEKs of its config.yaml lists " + string(m.identity)
}

// issuer describes the certificate's issuer.
func (m *machine) issuer() string {
	c, err := x509.ParseCertificate(m.chain[0])
	if err != nil {
		if ek, failed := tpmcert.ParseEK(m.chain[0]); failed == nil {
			c = ek.Certificate
		} else {
			return "an issuer that cannot be read"
		}
	}
	return fmt.Sprintf("%s, valid until %s", refusal.Text(c.Issuer.String()), c.NotAfter.UTC().Format(time.RFC3339))
}

// algorithm names a public key's algorithm.
func algorithm(key crypto.PublicKey) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA-%d", k.N.BitLen())
	case *ecdsa.PublicKey:
		return k.Params().Name
	}
	return fmt.Sprintf("%T", key)
}

// write writes the machine for people to read.
func (m *machine) write(w io.Writer) error {
	b := new(strings.Builder)
	line := func(name, text string) { fmt.Fprintf(b, "%-13s %s\n", name+":", refusal.Escape(text)) }
	line("Machine", cmp.Or(string(m.identity), "named by its AK's certificate: --roots shows how"))
	line("Kind", m.kind)
	if m.kind == tpm.Provider {
		name := map[bool]string{true: "EK", false: "AK"}[m.presented.Road == attest.RoadEK]
		line(name, algorithm(m.key))
		if len(m.chain) == 0 {
			line("Issuer", "no certificate; "+m.listed())
		} else {
			line("Issuer", m.issuer())
		}
	}
	if m.root != "" {
		line("Root", m.root)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// inventory returns the machine's item of the inventory, in JSON, which is YAML too.
func (m *machine) inventory(ctx context.Context, s *settings, evidence authenticator.Evidence, node string) ([]byte, error) {
	if m.identity == "" {
		return nil, refusal.Config("identity", "a machine that is named by its AK's certificate", "--roots with the root of that certificate, of one of the profiles tcg, google, azure and microsoft-aik")
	}
	item := struct {
		NodeName   string          `json:"nodeName"`
		Identity   attest.Identity `json:"identity"`
		Kind       string          `json:"kind"`
		ProviderID string          `json:"providerID,omitempty"`
	}{NodeName: cmp.Or(node, s.NodeName), Identity: m.identity, Kind: m.kind}
	if item.NodeName == "" {
		host, err := os.Hostname()
		if err == nil {
			item.NodeName, err = nodeName(host)
		}
		if err != nil {
			return nil, err
		}
	}
	ask, err := s.providerID(evidence)
	if err == nil && ask != nil {
		item.ProviderID, err = ask(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("providerID: %w", err)
	}
	return json.Marshal(item)
}
