package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/externalsigner/internal/keys"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	apiVersion = "config.nodeattest.github.io/v1alpha1"
	fileKind   = "ExternalSigner"

	// maxSize is the maximum length of a configuration file in bytes.
	maxSize = 1 << 20
)

// settings are the configuration file.
type settings struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Issuer is the "iss" of the tokens: kube-apiserver's first --service-account-issuer.
	Issuer string `json:"issuer"`
	// MaxLifetime and RefreshHint are as in extsigner.ServiceConfig.
	MaxLifetime keys.Duration `json:"maxLifetime"`
	RefreshHint keys.Duration `json:"refreshHint"`

	// Socket is the path of the socket. Empty: /run/external-jwt-signer/socket.
	Socket string `json:"socket"`
	// InsecureAbstract is a name in the abstract namespace, in the place of Socket.
	InsecureAbstract string `json:"insecureAbstract"`
	// AllowedUIDs and MaxWaitingCalls are as in externalsigner.ServerConfig.
	AllowedUIDs     []uint32 `json:"allowedUIDs"`
	MaxWaitingCalls int      `json:"maxWaitingCalls"`
	// StatusAddress is where /healthz, /readyz and /metrics are served: a loopback address and port, or
	// the path of a Unix socket. Empty: 127.0.0.1:8086; "0": nowhere.
	StatusAddress string `json:"statusAddress"`

	keys.Config `json:",inline"`
}

// readSettings reads a configuration file, and opens the key of a source that it names.
func readSettings(path string, sources []KeySource) (*settings, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(text) > maxSize {
		err = fmt.Errorf("more than %d bytes", maxSize)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s, err := parseSettings(text, sources)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// parseSettings reads a configuration file strictly.
func parseSettings(text []byte, sources []KeySource) (*settings, error) {
	text, err := toJSON(text)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	s := &settings{Socket: "/run/external-jwt-signer/socket"}
	for _, source := range sources {
		section, there := fields[source.Name]
		if !there {
			continue
		}
		delete(fields, source.Name)
		if s.Signer != nil {
			return nil, refusal.Config(source.Name, "next to another key", "one key")
		}
		if s.Signer, err = source.Open(func(into any) error { return decode(section, into) }); err != nil {
			return nil, fmt.Errorf("%s: %w", source.Name, err)
		}
	}
	if text, err = json.Marshal(fields); err != nil {
		return nil, err
	}
	if err := decode(text, s); err != nil {
		return nil, err
	}
	if s.APIVersion != apiVersion || s.Kind != fileKind {
		return nil, refusal.Config("apiVersion and kind", refusal.Quote(s.APIVersion)+" and "+refusal.Quote(s.Kind), apiVersion+" and "+fileKind)
	}
	return s, nil
}

// decode reads JSON strictly: its fields must be known, and there once.
func decode(text []byte, into any) error {
	strict, err := strictjson.UnmarshalStrict(text, into)
	return errors.Join(append(strict, err)...)
}

// toJSON converts a file, YAML or JSON, with one document to JSON. It refuses duplicate fields.
func toJSON(text []byte) ([]byte, error) {
	documents := goyaml.NewDecoder(bytes.NewReader(text))
	if documents.Decode(new(any)) == nil {
		if err := documents.Decode(new(any)); !errors.Is(err, io.EOF) {
			return nil, errors.New("more than one document")
		}
	}
	converted, err := yaml.YAMLToJSONStrict(text)
	if err == nil && !strings.HasPrefix(string(converted), "{") {
		err = errors.New("not an object")
	}
	return converted, err
}
