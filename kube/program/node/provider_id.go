package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// askProviderID asks a machine for its provider ID.
type askProviderID = func(ctx context.Context) (string, error)

// autoProviderID is the field providerID of a file whose machine is asked.
const autoProviderID = "auto"

// identified is evidence, or a source of it, that can read the machine's provider ID.
type identified interface {
	ProviderID(ctx context.Context) (string, error)
}

// identifiedEvidence is evidence with a source of the provider ID.
type identifiedEvidence struct {
	authenticator.Evidence
	identified
}

// providerID reads the field providerID: an ID, auto, or an object with a file. It is nil if the node
// says nothing of itself.
func (s *settings) providerID(evidence authenticator.Evidence) (askProviderID, error) {
	const form = `"", an ID in quotes, auto, or {file: <path>}`
	var text string
	switch raw := bytes.TrimSpace(s.ProviderID); {
	case len(raw) == 0:
	case raw[0] == '{':
		var from struct {
			File string `json:"file"`
		}
		if err := s.ProviderID.Decode(&from); err != nil {
			return nil, unreadable("a section providerID that cannot be read", err)
		}
		if from.File == "" {
			return nil, refusal.Config("providerID", "an object without a file", form)
		}
		return providerIDFile(from.File), nil
	case json.Unmarshal(raw, &text) != nil:
		return nil, refusal.Config("providerID", refusal.Quote(string(raw)), form)
	}
	switch text {
	case "":
		return nil, nil
	case autoProviderID:
		if k, ok := evidence.(identified); ok {
			return k.ProviderID, nil
		}
		of := noEvidence
		if evidence != nil {
			of = evidence.Provider()
		}
		return nil, refusal.Config("providerID", "auto, which evidence "+of+" does not support", "an ID in quotes, or {file: <path>}")
	}
	if err := oid.CheckProviderID(text); err != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "providerID " + refusal.Quote(text), Want: form, Err: err}
	}
	return func(context.Context) (string, error) { return text, nil }, nil
}

// providerIDFile reads a file with a provider ID in one line, each time anew.
func providerIDFile(path string) askProviderID {
	return func(context.Context) (string, error) {
		text, err := readFile(path, oid.MaxProviderIDSize+1)
		if err != nil {
			return "", err
		}
		id := strings.TrimSuffix(string(text), "\n")
		if err := oid.CheckProviderID(id); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		return id, nil
	}
}
