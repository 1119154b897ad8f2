package kubelet

import (
	"bytes"
	"errors"
	"io/fs"
	"strconv"
	"strings"
)

// Flags are the kubelet's flags that this package checks. Of a repeated flag, the last is used.
type Flags struct {
	// Bootstrap, Config, ConfigDir and Hostname are the values of --bootstrap-kubeconfig,
	// --config, --config-dir and --hostname-override.
	Bootstrap, Config, ConfigDir, Hostname string
	// Rotate and Serve are the values of --rotate-certificates and --rotate-server-certificates;
	// nil if absent.
	Rotate, Serve *bool
	// Cut says that the arguments were too long to be read whole.
	Cut bool
}

// ReadFlags returns the flags in an environment file or a systemd unit. The file may be
// missing. The check of the error is [CheckFile].
func ReadFlags(path string) (*Flags, error) {
	text, err := readFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return parseFlags(wordsOf(text)), nil
}

// parseFlags reads arguments as a kubelet does: a value follows an equals sign or is the next
// argument, a switch may have a value or none, and an underscore in a name means a hyphen.
func parseFlags(arguments []string) *Flags {
	f := new(Flags)
	into := map[string]*string{"bootstrap-kubeconfig": &f.Bootstrap, "config": &f.Config, "config-dir": &f.ConfigDir, "hostname-override": &f.Hostname}
	switches := map[string]**bool{"rotate-certificates": &f.Rotate, "rotate-server-certificates": &f.Serve}
	for n := 0; n < len(arguments) && arguments[n] != "--"; n++ {
		name, value, has := strings.Cut(arguments[n], "=")
		name, ok := strings.CutPrefix(name, "--")
		if !ok {
			continue
		}
		name = strings.ReplaceAll(name, "_", "-")
		if at := switches[name]; at != nil {
			on, _ := strconv.ParseBool(value) // the kubelet refuses a value that is neither
			on = on || !has
			*at = &on
		}
		if into[name] == nil {
			continue
		}
		if !has && n+1 < len(arguments) {
			n++
			value = arguments[n]
		}
		*into[name] = value
	}
	return f
}

// wordsOf returns the words of an environment file or a systemd unit, without comments and
// quotes. The first word of a value is without the variable's name.
func wordsOf(text []byte) []string {
	var words []string
	// A line goes on behind a backslash: systemd.syntax(7).
	for line := range bytes.Lines(bytes.ReplaceAll(text, []byte("\\\n"), []byte(" \n"))) {
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' || line[0] == ';' {
			continue
		}
		for word := range strings.FieldsSeq(strings.NewReplacer(`"`, "", `'`, "").Replace(string(line))) {
			if _, value, ok := strings.Cut(word, "=--"); ok && !strings.HasPrefix(word, "--") {
				word = "--" + value
			}
			if word != "--" {
				words = append(words, word)
			}
		}
	}
	return words
}
