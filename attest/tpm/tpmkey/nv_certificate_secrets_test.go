package tpmkey

import (
	"testing"

	"github.com/nodeattest/nodeattest/internal/secrettest"
)

func TestNVWriterIsNotShown(t *testing.T) {
	password := []byte("owner-pass-1234")
	secrettest.Check(t, nvWriter{password: hidden(password)}, password)
}
