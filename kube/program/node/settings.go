package node

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-tpm/tpm2"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

// settingsKind is the kind of the file.
const settingsKind = "KubeletAuthenticatorConfiguration"

// settings are the program's configuration file, in YAML or JSON. The file in kube/deploy/node explains
// every field.
type settings struct {
	configfile.Header `json:",inline"`

	NodeName   string   `json:"nodeName"`
	StateDir   string   `json:"stateDir"`
	KeyDir     string   `json:"keyDir"`
	Kubeconfig string   `json:"kubeconfig"`
	ClusterID  string   `json:"clusterID"`
	SignerName string   `json:"signerName"`
	Lifetime   duration `json:"lifetime"`
	// ProviderID is an ID, auto, or an object with a file.
	ProviderID     configfile.Section `json:"providerID"`
	RecoverySigner string             `json:"recoverySigner"`
	Serving        *servingSettings   `json:"serving"`
	// Evidence has one section, named after the kind of evidence.
	Evidence map[string]configfile.Section `json:"evidence"`
	// MinimumVersion is the field of [authenticator.Config].
	MinimumVersion int             `json:"minimumVersion"`
	Kubelet        kubeletSettings `json:"kubelet"`
	// Discovery, if set, keeps the kubeconfig's CAs and server current.
	Discovery *discoverySettings `json:"discovery"`
	// Metrics is the address of the daemon's metrics; "": they are not served.
	Metrics string `json:"metrics"`
}

type servingSettings struct {
	SignerName  string       `json:"signerName"`
	DNSNames    []string     `json:"dnsNames"`
	IPAddresses []netip.Addr `json:"ipAddresses"`
}

type tpmSettings struct {
	Device       string `json:"device"`
	EK           string `json:"ek"`
	PersistentEK string `json:"persistentEK"`
	// AK is a name, or an object: akSettings.
	AK                      configfile.Section `json:"ak"`
	Intermediates           string             `json:"intermediates"`
	EKChainFromNV           bool               `json:"ekChainFromNV"`
	EndorsementPassword     string             `json:"endorsementPassword"`
	EndorsementPasswordFile string             `json:"endorsementPasswordFile"`
	AKPasswordFile          string             `json:"akPasswordFile"`
	Quote                   bool               `json:"quote"`
	EventLog                string             `json:"eventLog"`
}

type kubeletSettings struct {
	Config    string   `json:"config"`
	ConfigDir string   `json:"configDir"`
	FlagFiles []string `json:"flagFiles"`
	Processes bool     `json:"processes"`
}

// duration is written like "24h".
type duration time.Duration

// UnmarshalText reads a duration.
func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

// Default paths.
const (
	defaultState      = "/var/lib/kubelet-authenticator"
	defaultKeys       = "/run/kubelet-authenticator" // with a recovery certificate
	defaultKubeconfig = "/etc/kubernetes/kubelet-authenticator.conf"
	defaultDevice     = "/dev/tpmrm0"
	defaultKubelet    = "/var/lib/kubelet/config.yaml"
)

// defaultFlagFiles returns the files with a kubelet's flags. In systemd, files in /etc hide files in
// /usr/lib.
func defaultFlagFiles() []string {
	return []string{
		"/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet",
		"/etc/systemd/system/kubelet.service", "/etc/systemd/system/kubelet.service.d/*.conf",
		"/run/systemd/system/kubelet.service", "/run/systemd/system/kubelet.service.d/*.conf",
		"/usr/local/lib/systemd/system/kubelet.service", "/usr/local/lib/systemd/system/kubelet.service.d/*.conf",
		"/usr/lib/systemd/system/kubelet.service", "/usr/lib/systemd/system/kubelet.service.d/*.conf",
	}
}

// maxPassword bounds a file with a password, in bytes.
const maxPassword = 1 << 10

// parseSettings parses the file. It refuses unknown fields and values of the wrong type.
func parseSettings(text []byte) (*settings, error) {
	if len(text) > configfile.MaxSize {
		return nil, refusal.Config("the file", fmt.Sprintf("of %d bytes", len(text)), fmt.Sprintf("at most %d", configfile.MaxSize))
	}
	s := &settings{Kubelet: kubeletSettings{Config: defaultKubelet, Processes: true}}
	if _, err := configfile.Decode(text, s); err != nil {
		return nil, unreadable("an invalid file", err)
	}
	if err := s.Header.Check(settingsKind); err != nil {
		return nil, err
	}
	return s, nil
}

func unreadable(what string, err error) error {
	return &refusal.Error{Check: refusal.CheckConfig, Got: what, Err: err}
}

// config makes the library's configuration from the settings. kinds are in addition to the built-in ones.
func (s *settings) config(kinds []Evidence) (authenticator.Config, error) {
	c := authenticator.Config{
		NodeName: s.NodeName, Dir: cmp.Or(s.StateDir, defaultState), KeyDir: s.KeyDir, ClusterID: s.ClusterID, SignerName: s.SignerName,
		Lifetime: time.Duration(s.Lifetime), RecoverySigner: s.RecoverySigner,
		MinimumVersion: s.MinimumVersion,
	}
	if c.KeyDir == "" && s.RecoverySigner != "" { // so that no copy of a disk has the keys
		c.KeyDir = defaultKeys
	}
	if c.NodeName == "" { // as the kubelet names itself
		name, err := os.Hostname()
		if err != nil {
			return c, err
		}
		if c.NodeName, err = nodeName(name); err != nil {
			return c, err
		}
	}
	if s.Serving != nil {
		c.Serving = &authenticator.Serving{SignerName: s.Serving.SignerName, DNSNames: s.Serving.DNSNames, IPAddresses: s.Serving.IPAddresses}
	}
	kubeconfig := cmp.Or(s.Kubeconfig, defaultKubeconfig)
	c.API = func() (*rest.Config, error) { return readKubeconfig(kubeconfig) }
	k := s.Kubelet
	c.Kubelet = authenticator.Kubelet{ConfigFile: k.Config, ConfigDir: k.ConfigDir, FlagFiles: k.FlagFiles, Parent: true, Processes: k.Processes}
	if s.Kubelet.FlagFiles == nil {
		c.Kubelet.FlagFiles = defaultFlagFiles()
	}
	var err error
	if c.Kind, err = s.evidence(kinds); err != nil {
		return c, err
	}
	if c.Kind == nil && s.SignerName != csr.SignerClientInsecure {
		return c, refusal.Config("signerName", refusal.Quote(s.SignerName), csr.SignerClientInsecure+", the only one for evidence: {none: {}}")
	}
	if c.ProviderID, err = s.providerID(c.Kind); err != nil {
		return c, err
	}
	if k, ok := c.Kind.(*identifiedEvidence); ok {
		c.Kind = k.Evidence // which has every version of its format
	}
	if err := keptPassword(c.Kind).apart(c.Dir, cmp.Or(c.KeyDir, c.Dir)); err != nil {
		return c, err
	}
	if s.RecoverySigner != "" && c.Kind != nil && c.Kind.Provider() != tpm.Provider {
		return c, refusal.Config("recoverySigner", refusal.Quote(s.RecoverySigner), `""`+": recovery needs a key in a TPM, which evidence "+c.Kind.Provider()+" does not prove")
	}
	return c, nil
}

// nodeName returns the node name of a host name. It refuses a default such as localhost: the host may get
// its name later, and systemd restarts the program.
func nodeName(host string) (string, error) {
	name := strings.ToLower(strings.TrimSpace(host))
	switch first, _, _ := strings.Cut(name, "."); first {
	case "", "(none)", "localhost", "localhost4", "localhost6":
		return "", refusal.Config("nodeName", "unset, with the host name "+refusal.Quote(host), "nodeName, or a host name of the machine's own")
	}
	return name, nil
}

// readFile reads a file of at most most bytes, which only root and this process's user may be able to
// write to. The path may be a link.
func readFile(path string, most int) ([]byte, error) {
	var text []byte
	target, err := filepath.EvalSymlinks(path)
	if err == nil {
		text, err = safefile.Read(target, most, safefile.Trusted)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

type endorsementKey struct {
	origin tpm.EKOrigin
	handle tpm2.TPMHandle
}

// eks returns the endorsement keys by their names in the file, each with its persistent handle in the
// TCG's registry and common provisioning tools.
func eks() map[string]endorsementKey {
	return map[string]endorsementKey{
		"rsa-2048":      {tpm.EKRSA2048(), 0x81010001},
		"p-256":         {tpm.EKP256(), 0x81010002},
		"rsa-2048-high": {tpm.EKHigh(1), 0x81010012},
		"p-256-high":    {tpm.EKHigh(2), 0x81010014},
		"p-384-high":    {tpm.EKHigh(3), 0x81010016},
		"rsa-3072-high": {tpm.EKHigh(6), 0x8101001c},
	}
}

// evidence makes the evidence of a TPM.
func (t *tpmSettings) evidence() (authenticator.Evidence, error) {
	k := &authenticator.TPM{Path: cmp.Or(t.Device, defaultDevice)}
	ak, err := t.key()
	if err != nil {
		return nil, err
	}
	if k.AK = ak.AKSource; t.AKPasswordFile != "" && !ak.takesPassword() {
		return nil, refusal.Config("evidence.tpm.akPasswordFile", "set, with ak "+ak.name, "unset: only ak oem and a key with a handle have a password")
	}
	if !ak.hasCertificate() {
		ek, ok := eks()[cmp.Or(t.EK, "rsa-2048")]
		if !ok {
			return nil, refusal.Config("evidence.tpm.ek", refusal.Quote(t.EK), "rsa-2048, p-256, rsa-2048-high, p-256-high, p-384-high or rsa-3072-high")
		}
		k.Options.EK, k.PersistentEK = &ek.origin, ek.handle
	} else if t.EK != "" || t.PersistentEK != "" {
		return nil, refusal.Config("evidence.tpm.ek and persistentEK", refusal.Quote(t.EK)+" and "+refusal.Quote(t.PersistentEK), `"" for both: ak `+ak.name+" has a certificate of its own")
	}
	if err := t.persistent(k); err != nil {
		return nil, err
	}
	if t.Intermediates != "" {
		chain, err := readCertificates(t.Intermediates)
		if err != nil {
			return nil, err
		}
		k.Options.Intermediates = tpmcert.CertificatesDER(chain)
	}
	k.Options.EKChainFromNV = t.EKChainFromNV
	if t.Quote {
		k.Options.Quote = tpm.DefaultPCRs()
	}
	if err := t.eventLog(k); err != nil {
		return nil, err
	}
	k.AKPasswordFile = t.AKPasswordFile
	kept, password, err := t.endorsement(ak)
	if err != nil {
		return nil, err
	}
	k.Options.EndorsementPassword = password
	switch {
	case ak.other == nil && kept == "":
		return k, nil
	case ak.other != nil && t.Intermediates != "" && ak.other.CertificatesFile != "":
		return nil, refusal.Config("evidence.tpm.intermediates", "set, as is "+akField("certificatesFile"), "none: that file has the whole chain")
	}
	return &preparedTPM{TPM: k, password: kept, ak: ak.other, now: time.Now}, nil
}

// persistent reads the handle of the persistent EK.
func (t *tpmSettings) persistent(k *authenticator.TPM) (err error) {
	switch t.PersistentEK {
	case "":
	case "none":
		k.PersistentEK = 0
	default:
		k.PersistentEK, err = parseHandle("evidence.tpm.persistentEK", t.PersistentEK, persistentKey, ", or none")
	}
	return err
}

// eventLog has the event log read for each piece of evidence.
func (t *tpmSettings) eventLog(k *authenticator.TPM) error {
	if t.EventLog == "" {
		return nil
	}
	if !t.Quote {
		return refusal.Config("evidence.tpm.eventLog", refusal.Quote(t.EventLog), "quote: true, too")
	}
	k.Options.EventLog = readEventLog(t.EventLog)
	return nil
}

func readCertificates(path string) ([]*x509.Certificate, error) {
	text, err := readFile(path, configfile.MaxSize)
	if err != nil {
		return nil, err
	}
	all, err := tpmcert.ParseCertificatesPEM(text)
	if err == nil && len(all) == 0 {
		err = errors.New("no certificates")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}
