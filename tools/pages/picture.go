package main

import (
	"fmt"
	"html"
	"strconv"
	"strings"
)

// A picture is drawn from lines of text. Numbers are pixels; x and y are of the left upper
// corner, and # begins a comment.
//
//	size WIDTH HEIGHT
//	zone NAME X Y WIDTH HEIGHT TITLE    a place, with boxes in it
//	box NAME X Y WIDTH TITLE            indented lines below it are its text
//	arrow FROM TO AT LABEL              from the edge of a box or zone to that of another, which are
//	                                    side by side at height AT, or one above the other at AT
//	                                    from the left; \ in the label begins a line
type picture struct {
	width, height int
	shapes        []*shape
	arrows        []line
}

// A shape is a zone or a box.
type shape struct {
	name, title string
	x, y, w, h  int
	zone        bool
	lines       []string
}

// A line is an arrow between two shapes.
type line struct {
	x1, y1, x2, y2 int
	label          []string
}

const (
	lineHeight = 17
	charWidth  = 7 // of a wide font, so that text fits with any
	margin     = 10
)

// drawn makes SVG of a picture's text. Text that is wider than its box, boxes that overlap or leave
// the picture, and labels that do not fit between the boxes are errors.
func drawn(text string) (string, error) {
	p := new(picture)
	for n, l := range strings.Split(text, "\n") {
		if err := p.add(l); err != nil {
			return "", fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	if err := p.check(); err != nil {
		return "", err
	}
	return p.svg(), nil
}

func (p *picture) add(l string) error {
	if content, is := strings.CutPrefix(l, "  "); is {
		if len(p.shapes) == 0 || p.shapes[len(p.shapes)-1].zone {
			return fmt.Errorf("text without a box: %q", l)
		}
		s := p.shapes[len(p.shapes)-1]
		s.lines = append(s.lines, content)
		s.h += lineHeight
		return nil
	}
	kind, rest, _ := strings.Cut(l, " ")
	var err error
	switch kind {
	case "", "#":
	case "size":
		_, err = numbers(rest, &p.width, &p.height)
	case "zone", "box":
		s := &shape{zone: kind == "zone", h: 2*margin + lineHeight}
		s.name, rest, _ = strings.Cut(rest, " ")
		if s.zone {
			s.title, err = numbers(rest, &s.x, &s.y, &s.w, &s.h)
		} else {
			s.title, err = numbers(rest, &s.x, &s.y, &s.w)
		}
		p.shapes = append(p.shapes, s)
	case "arrow":
		err = p.connect(rest)
	default:
		err = fmt.Errorf("%q is neither size, zone, box nor arrow", kind)
	}
	return err
}

// numbers reads numbers from the start of a text, and returns the rest.
func numbers(text string, into ...*int) (rest string, err error) {
	rest = text
	for _, n := range into {
		var field string
		field, rest, _ = strings.Cut(rest, " ")
		if *n, err = strconv.Atoi(field); err != nil {
			return "", err
		}
	}
	return rest, nil
}

func (p *picture) connect(text string) error {
	from, rest, _ := strings.Cut(text, " ")
	to, rest, _ := strings.Cut(rest, " ")
	var at int
	label, err := numbers(rest, &at)
	a, b := p.find(from), p.find(to)
	if err != nil || a == nil || b == nil {
		return fmt.Errorf("arrow from %q to %q: want two that stand above it, and a number", from, to)
	}
	l := line{label: strings.Split(label, `\`)}
	switch {
	case at > max(a.y, b.y) && at < min(a.y+a.h, b.y+b.h) && a.x+a.w < b.x:
		l.x1, l.x2, l.y1, l.y2 = a.x+a.w, b.x, at, at
	case at > max(a.y, b.y) && at < min(a.y+a.h, b.y+b.h) && b.x+b.w < a.x:
		l.x1, l.x2, l.y1, l.y2 = a.x, b.x+b.w, at, at
	case at > max(a.x, b.x) && at < min(a.x+a.w, b.x+b.w) && a.y+a.h < b.y:
		l.x1, l.x2, l.y1, l.y2 = at, at, a.y+a.h, b.y
	case at > max(a.x, b.x) && at < min(a.x+a.w, b.x+b.w) && b.y+b.h < a.y:
		l.x1, l.x2, l.y1, l.y2 = at, at, a.y, b.y+b.h
	default:
		return fmt.Errorf("at %d, %s is neither next to %s nor above or below it", at, from, to)
	}
	p.arrows = append(p.arrows, l)
	return nil
}

func (p *picture) find(name string) *shape {
	for _, s := range p.shapes {
		if s.name == name {
			return s
		}
	}
	return nil
}

func (p *picture) check() error {
	for i, s := range p.shapes {
		for _, l := range append(s.lines, s.title) {
			if len(l)*charWidth > s.w-2*margin {
				return fmt.Errorf("%s: %q does not fit", s.name, l)
			}
		}
		if s.x < 0 || s.y < 0 || s.x+s.w > p.width || s.y+s.h > p.height {
			return fmt.Errorf("%s is not in the picture", s.name)
		}
		for _, o := range p.shapes[:i] {
			apart := s.x >= o.x+o.w || o.x >= s.x+s.w || s.y >= o.y+o.h || o.y >= s.y+s.h
			within := o.zone && s.x >= o.x && s.y >= o.y+margin+lineHeight && s.x+s.w <= o.x+o.w && s.y+s.h <= o.y+o.h
			if !apart && !within {
				return fmt.Errorf("%s and %s overlap", s.name, o.name)
			}
		}
	}
	for _, a := range p.arrows {
		for _, l := range a.label {
			if length := max(a.x2-a.x1, a.x1-a.x2); length != 0 && len(l)*charWidth > length {
				return fmt.Errorf("label %q does not fit", l)
			}
		}
	}
	return nil
}

func (p *picture) svg() string {
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="Helvetica, Arial, sans-serif" font-size="12">
<!-- make generate writes this file from architecture.txt -->
<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto"><path d="M0 0L9 4L0 8z" fill="#333"/></marker></defs>
<rect width="100%%" height="100%%" fill="#fff"/>
`, p.width, p.height)
	for _, s := range p.shapes {
		style, title := `fill="#fff" stroke="#333"`, `font-weight="bold"`
		if s.zone {
			style, title = `fill="#eef2f7" stroke="#8899aa" stroke-dasharray="5 3"`, `font-size="14" fill="#445566"`
		}
		fmt.Fprintf(&out, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" %s/>`+"\n", s.x, s.y, s.w, s.h, style)
		words(&out, s.x+margin, s.y+margin+lineHeight-5, title, s.title)
		for i, l := range s.lines {
			words(&out, s.x+margin, s.y+margin+lineHeight*(i+2)-5, "", l)
		}
	}
	for _, a := range p.arrows {
		fmt.Fprintf(&out, `<path d="M%d %dL%d %d" stroke="#333" marker-end="url(#head)"/>`+"\n", a.x1, a.y1, a.x2, a.y2)
		for i, l := range a.label {
			if a.y1 == a.y2 {
				words(&out, (a.x1+a.x2)/2, a.y1-5-lineHeight*(len(a.label)-1-i), `text-anchor="middle"`, l)
			} else {
				words(&out, a.x1+margin, (a.y1+a.y2)/2+4+lineHeight*i-lineHeight*(len(a.label)-1)/2, "", l)
			}
		}
	}
	out.WriteString("</svg>\n")
	return out.String()
}

func words(out *strings.Builder, x, y int, style, text string) {
	fmt.Fprintf(out, `<text x="%d" y="%d" %s>%s</text>`+"\n", x, y, style, html.EscapeString(text))
}
