-- Index to find the first messages of each receiver, whatever the others' backlog.
CREATE INDEX deliveries_in_turn ON deliveries (substr(substr(lower(url), 1, 300), 1, length(substr(lower(url), 1, 300)) - length(ltrim(substr(substr(lower(url), 1, 300), 9), 'abcdefghijklmnopqrstuvwxyz0123456789-._:[]'))), (next_at + 0));
