package program

import (
	"bytes"
	"cmp"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	strictjson "sigs.k8s.io/json"

	"github.com/nodeattest/nodeattest/externalsigner/internal/document"
	"github.com/nodeattest/nodeattest/externalsigner/internal/keys"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// apiVersion and fileKind are those of the configuration file. All programs of the project have the
	// version.
	apiVersion = "config.nodeattest.github.io/v1alpha1"
	fileKind   = "ExternalSigner"

	// maxSize is the maximum length of a configuration file in bytes.
	maxSize = 1 << 20

	defaultSocket        = "/run/external-jwt-signer/socket"
	defaultStatusAddress = "127.0.0.1:8086"
	defaultRefreshHint   = keys.Duration(5 * time.Minute)
)

// settings are the configuration file. deploy/config.yaml describes it.
type settings struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Issuer, MaxLifetime and RefreshHint are as in extsigner.ServiceConfig. Without RefreshHint it is five
	// minutes.
	Issuer      string        `json:"issuer"`
	MaxLifetime keys.Duration `json:"maxLifetime"`
	RefreshHint keys.Duration `json:"refreshHint"`

	// Socket is the path of the socket (externalsigner.Listen), and InsecureAbstract a name in its place
	// (externalsigner.ListenInsecureAbstract). Without both: /run/external-jwt-signer/socket.
	Socket           string `json:"socket"`
	InsecureAbstract string `json:"insecureAbstract"`
	// AllowedUIDs, MaxWaitingCalls and CallTimeout are as in externalsigner.ServerConfig.
	AllowedUIDs     []uint32      `json:"allowedUIDs"`
	MaxWaitingCalls int           `json:"maxWaitingCalls"`
	CallTimeout     keys.Duration `json:"callTimeout"`
	// StatusAddress is where /healthz, /readyz and /metrics are served, for every client that reaches it.
	// Empty: 127.0.0.1:8086; "0": nowhere.
	StatusAddress string `json:"statusAddress"`

	// Config is the keys.
	keys.Config `json:",inline"`
}

// readSettings reads a configuration file, which no other user may be able to write or to replace, as it says
// who may connect and which keys are revoked.
func readSettings(path string, sources []KeySource) (*settings, []byte, error) {
	var text []byte
	err := safefile.CheckWay(filepath.Dir(path)) // in whose folder others could put an older file of ours in its place
	if err == nil {
		text, err = safefile.Read(path, maxSize, safefile.Trusted)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	s, err := parseSettings(text, sources)
	if err != nil {
		return nil, nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return s, text, nil
}

// parseSettings reads a configuration file strictly, and opens the key of a source that it names.
func parseSettings(text []byte, sources []KeySource) (*settings, error) {
	fields, err := fieldsOf(text)
	if err != nil {
		return nil, err
	}
	sections := map[int]json.RawMessage{} // by the source's index
	for i, source := range sources {
		if section, there := fields[source.Name]; there {
			sections[i] = section
			delete(fields, source.Name)
		}
	}
	rest, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	s := new(settings)
	if err := decode(rest, s); err != nil {
		return nil, err
	}
	s.Config.Issuer = s.Issuer
	if err := s.check(len(sections)); err != nil {
		return nil, err
	}
	for i, section := range sections {
		if s.Signer, err = open(sources[i], section); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// open opens the key of a source. One without Open is only checked to be there.
func open(source KeySource, section json.RawMessage) (crypto.Signer, error) {
	if source.Open == nil {
		return nil, nil
	}
	key, err := source.Open(func(into any) error { return decode(section, into) })
	if err == nil && key == nil {
		err = errors.New("no key")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source.Name, err)
	}
	return key, nil
}

// check refuses settings that contradict each other, and completes them. sources is how many sources of
// keys the file names.
func (s *settings) check(sources int) error {
	if s.APIVersion != apiVersion || s.Kind != fileKind {
		return refusal.Config("apiVersion and kind", refusal.Quote(s.APIVersion)+" and "+refusal.Quote(s.Kind), apiVersion+" and "+fileKind)
	}
	if s.KeyFile != "" {
		sources++
	}
	if s.TPM != nil {
		sources++
	}
	switch {
	case sources != 1:
		return refusal.Config("key", fmt.Sprintf("from %d sections", sources), "one of keyFile, tpm and the sections of the program's own")
	case s.Socket != "" && s.InsecureAbstract != "":
		return refusal.Config("socket", "and insecureAbstract", "one of them")
	case s.Socket == "" && s.InsecureAbstract == "":
		s.Socket = defaultSocket
	}
	s.RefreshHint = cmp.Or(s.RefreshHint, defaultRefreshHint)
	switch s.StatusAddress {
	case nowhere:
		return nil
	case "":
		s.StatusAddress = defaultStatusAddress
	}
	if _, _, err := net.SplitHostPort(s.StatusAddress); err != nil {
		return refusal.Config("statusAddress", refusal.Quote(s.StatusAddress), `an address and a port, or "0"`)
	}
	return nil
}

// decode reads JSON strictly: its fields must be known, in this case, and there once.
func decode(text []byte, into any) error {
	if trimmed := bytes.TrimSpace(text); len(trimmed) == 0 || trimmed[0] != '{' {
		return errors.New("not an object, such as {}")
	}
	strict, err := strictjson.UnmarshalStrict(text, into)
	return errors.Join(append(strict, err)...)
}

// fieldsOf reads a file, YAML or JSON, of one document that is an object without duplicate fields.
func fieldsOf(text []byte) (map[string]json.RawMessage, error) {
	converted, err := document.JSON(text)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	return fields, json.Unmarshal(converted, &fields)
}
