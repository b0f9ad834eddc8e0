-- The words of what people see, to be found. Nothing of the texts themselves is kept here.
CREATE VIRTUAL TABLE turn_words USING fts5(place, words, content='', contentless_delete=1, tokenize='ascii');
CREATE VIRTUAL TABLE title_words USING fts5(place, words, content='', contentless_delete=1, tokenize='ascii');

-- Turns up to this one can be found.
CREATE TABLE search_mark (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    turn INTEGER NOT NULL
) STRICT;
