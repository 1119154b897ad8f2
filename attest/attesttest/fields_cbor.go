package attesttest

import (
	"encoding/binary"
	"strconv"
)

// cborString is a byte or text string of CBOR: its content is data[from:to], and its head begins at start.
type cborString struct {
	major           byte
	start, from, to int
}

// cborStrings returns the strings of one item of CBOR (RFC 8949, section 3) with definite lengths, and
// whether data is one: an array, a map or a tagged item, with nothing after it.
func cborStrings(data []byte) (found []cborString, ok bool) {
	if len(data) == 0 || data[0]>>5 < 4 || data[0]>>5 > 6 {
		return nil, false
	}
	i, need := 0, uint64(1)
	for ; need > 0 && i < len(data); need-- {
		major, n, width := cborHead(data[i:])
		if width == 0 || major != 7 && n > uint64(len(data)) {
			return nil, false
		}
		start := i
		i += width
		switch major {
		case 2, 3:
			if n > uint64(len(data)-i) { //nolint:gosec // not negative: the head was there
				return nil, false
			}
			found = append(found, cborString{major, start, i, i + int(n)}) //nolint:gosec // at most len(data)
			i += int(n)                                                    //nolint:gosec // at most len(data)
		case 4:
			need += n
		case 5:
			need += 2 * n
		case 6:
			need++
		}
	}
	return found, need == 0 && i == len(data)
}

// cborHead reads the head of an item; its width is 0 if data has no whole head.
func cborHead(data []byte) (major byte, n uint64, width int) {
	major = data[0] >> 5
	info := data[0] & 0x1f
	if info < 24 {
		return major, uint64(info), 1
	}
	width = 1 + 1<<(info-24) // with a number of 1, 2, 4 or 8 bytes
	if info > 27 || width > len(data) {
		return major, 0, 0
	}
	for _, b := range data[1:width] {
		n = n<<8 | uint64(b)
	}
	return major, n, width
}

// appendCBORHead writes the shortest head of a string.
func appendCBORHead(b []byte, major byte, n int) []byte {
	switch lead := major << 5; {
	case n < 24:
		return append(b, lead|byte(n))
	case n < 1<<8:
		return append(b, lead|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, lead|25), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, lead|26), uint32(n)) //nolint:gosec // evidence is small
	}
}

func (a *anatomy) readCBOR(data []byte, items []cborString, whole rebuild, path string) {
	for n, s := range items {
		path, content := path+"/"+strconv.Itoa(n), data[s.from:s.to]
		at := func(parts ...[]byte) []byte { return whole(splice(data, s.start, s.to, parts...)) }
		put := func(content []byte) []byte { return at(appendCBORHead(nil, s.major, len(content)), content) }
		a.add(content, put, path, at([]byte{0xf6}))
		long := binary.BigEndian.AppendUint64([]byte{s.major<<5 | 27}, uint64(len(content)))
		a.respell("a length of CBOR in a longer form", at(long, content))
		a.respell("a string of CBOR of indefinite length", at([]byte{s.major<<5 | 31}, appendCBORHead(nil, s.major, len(content)), content, []byte{0xff}))
		if len(content) > 8 {
			a.read(content, put, path)
		}
	}
}
