package bootstraptoken

import (
	"errors"
	"testing"
)

func TestParse(t *testing.T) {
	token, err := Parse("abcdef.0123456789abcdef")
	if err != nil || token.ID() != "abcdef" || token.Reveal() != "abcdef.0123456789abcdef" {
		t.Fatalf("%v, %v", token, err)
	}
	if _, err := Parse("Abcdef.0123456789abcdef"); !errors.Is(err, CheckToken) {
		t.Fatal(err)
	}
}
