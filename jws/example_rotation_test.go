package jws_test

import (
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/jws"
)

// A signer goes on after a restart: the stored state says which of the keys signs, and
// when the former one leaves.
func ExampleResumeRotatingSigner() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	config := jws.RotationConfig{Publish: time.Hour, Retain: 24 * time.Hour, Now: func() time.Time { return now }}
	var keys []jws.KeySigner // as they lie in a folder or in a TPM
	for _, keyID := range []string{"second", "first"} {
		key, err := newSigner(keyID)
		if err != nil {
			fmt.Println(err)
			return
		}
		keys = append(keys, key)
	}
	signer, err := jws.NewRotatingSigner(keys[1], config)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := signer.Rotate(keys[0]); err != nil {
		fmt.Println(err)
		return
	}
	state, err := signer.State() // store it
	if err != nil {
		fmt.Println(err)
		return
	}

	now = now.Add(2 * time.Hour)
	resumed, err := jws.ResumeRotatingSigner(state, config, keys...)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, published := range resumed.Published() {
		if published.Until.IsZero() {
			fmt.Println(published.Key.KeyID(), "signs")
			continue
		}
		fmt.Println(published.Key.KeyID(), "until", published.Until.Format(time.DateTime))
	}
	// Output:
	// second signs
	// first until 2026-03-02 13:00:00
}
