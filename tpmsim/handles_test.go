package tpmsim_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func TestLoadedHandles(t *testing.T) {
	onBoth(t, bare(), func(t *testing.T, tpm *tpmsim.TPM) {
		want := func(handles ...tpm2.TPMHandle) {
			t.Helper()
			got, err := tpmsim.LoadedHandles(tpm)
			testkit.NoError(t, err)
			slices.Sort(got)
			slices.Sort(handles)
			if !slices.Equal(got, handles) {
				t.Errorf("handles %x, want %x", got, handles)
			}
		}
		want()
		key, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(tpm)
		testkit.NoError(t, err)
		want(key.ObjectHandle)
		session, _, err := tpm2.PolicySession(tpm, tpm2.TPMAlgSHA256, 16)
		testkit.NoError(t, err)
		want(key.ObjectHandle, session.Handle())
		if _, err := (tpm2.ContextSave{SaveHandle: session.Handle()}).Execute(tpm); err != nil {
			t.Fatal(err)
		}
		saved, err := tpmsim.LoadedHandles(tpm)
		if err != nil || len(saved) != 2 {
			t.Errorf("with a saved session: %x, %v; want two handles", saved, err)
		}
		for _, h := range []tpm2.TPMHandle{key.ObjectHandle, session.Handle()} {
			if _, err := (tpm2.FlushContext{FlushHandle: h}).Execute(tpm); err != nil {
				t.Error(err)
			}
		}
		want()
	})
}

func TestLoadedHandlesFails(t *testing.T) {
	tpm := tpmsim.Faulty(&fakeTPM{}, tpmsim.FailAt(1, nil))
	if _, err := tpmsim.LoadedHandles(tpm); !errors.Is(err, tpmsim.ErrInjected) {
		t.Errorf("%v, want ErrInjected", err)
	}
	if _, err := tpmsim.LoadedHandles(tpm); err == nil { // a success without a body
		t.Error("an empty response is taken for a list")
	}
}
