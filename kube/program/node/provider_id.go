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

// askProviderID reads a machine's provider ID.
type askProviderID = func(ctx context.Context) (string, error)

// autoProviderID is the value of providerID for an ID that the machine reads from its platform.
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

// providerID reads the field providerID: an ID, auto, or an object with a file. It returns nil if the node
// claims no ID.
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
			return nil, unreadable("an invalid section providerID", err)
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

// providerIDFile reads a file with a provider ID in one line, at each call.
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
