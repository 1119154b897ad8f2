// Package evidence opens a machine's evidence in one of the versions of its data format.
package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Opener opens the evidence in one version.
type Opener = func(ctx context.Context) (attest.Prover, error)

// Versions are the versions of the data format in which a machine can write its evidence.
type Versions struct {
	// Provider is the Provider of each Prover.
	Provider string
	// Open has a function for each version, the newest first; nil without evidence.
	Open []Opener
	// Minimum is the oldest version to write; 0 means the newest.
	Minimum int
}

// Check refuses values that no attempt can use, with refusal.CheckConfig.
func (v *Versions) Check() error {
	switch {
	case v.Open == nil && v.Minimum != 0:
		return refusal.Config("MinimumVersion", strconv.Itoa(v.Minimum), "0: without evidence there are no versions")
	case v.Open != nil && (len(v.Open) == 0 || slices.ContainsFunc(v.Open, func(open Opener) bool { return open == nil })):
		return refusal.Config("Kind", refusal.Quote(v.Provider)+" without a function", "one for each version, the newest first")
	case v.Minimum < 0:
		return refusal.Config("MinimumVersion", strconv.Itoa(v.Minimum), "0 or more")
	}
	return nil
}

// Opened is evidence in one version. Closing the Attester closes the Prover too.
type Opened struct {
	Prover   attest.Prover
	Attester *attest.Attester
}

func (v *Versions) open(ctx context.Context, open Opener) (Opened, error) {
	prover, err := open(ctx)
	if err != nil {
		return Opened{}, fmt.Errorf("evidence %s: %w", v.Provider, err)
	}
	attester, err := attest.NewAttester(prover)
	if err != nil {
		if prover != nil {
			err = errors.Join(err, prover.Close())
		}
		return Opened{}, err
	}
	return Opened{prover, attester}, nil
}

// Newest opens the evidence in the newest version.
func (v *Versions) Newest(ctx context.Context) (Opened, error) {
	opened, err := v.open(ctx, v.Open[0])
	if err != nil {
		return Opened{}, err
	}
	if newest := opened.Prover.Version(); newest < v.Minimum {
		err = refusal.Config("MinimumVersion", strconv.Itoa(v.Minimum), "at most "+strconv.Itoa(newest)+", the newest that is written")
		return Opened{}, errors.Join(err, opened.Attester.Close())
	}
	return opened, nil
}

// Older opens the evidence in the newest version below the denied one that the annotations of the
// denial name and Minimum allows.
func (v *Versions) Older(ctx context.Context, denied int, annotations map[string]string) (Opened, error) {
	minimum, last := cmp.Or(v.Minimum, denied), denied
	var speaks []string
	for _, open := range v.Open[1:] {
		if minimum >= last {
			break
		}
		opened, err := v.open(ctx, open)
		if err != nil {
			return Opened{}, err
		}
		version := opened.Prover.Version()
		if version >= last {
			return Opened{}, errors.Join(refusal.Config("Kind", fmt.Sprintf("with version %d after %d", version, last), "the newest first"), opened.Attester.Close())
		}
		if version >= minimum {
			speaks = append(speaks, opened.Prover.Provider()+"/v"+strconv.Itoa(version))
			if _, err := (&csr.Metadata{Annotations: annotations}).ChooseVersion(speaks); err == nil {
				return opened, nil
			}
		}
		if err := opened.Attester.Close(); err != nil {
			return Opened{}, err
		}
		last = version
	}
	_, err := (&csr.Metadata{Annotations: annotations}).ChooseVersion(speaks)
	return Opened{}, fmt.Errorf("no older version of the evidence to try (MinimumVersion %d): %w", v.Minimum, err)
}

// Of describes the evidence of a provider, for messages.
func Of(provider string) string {
	if provider == csr.ProviderOf(csr.SignerClientInsecure) {
		return "no evidence"
	}
	return "evidence of " + provider
}
